package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// replicaTwins is a server on a Redis with a replica that knows only after a second or so what the server wrote. In the
// namespace chat, alice left. In chadow, she became invisible. In both, bob is there.
type replicaTwins struct{ *replicaServer }

func newReplicaTwins(t *testing.T) replicaTwins {
	t.Helper()
	w := replicaTwins{newLaggingServer(t, time.Minute)}
	for _, namespace := range []string{"chat", "chadow"} {
		_, err := w.redis.Ping(context.Background(), namespace, []store.Sighting{
			{User: "alice", At: testNow}, {User: "bob", At: testNow},
		})
		require.NoError(t, err)
	}
	w.settle()
	w.write("POST", "/chat/users/alice/leave", "")
	w.write("PUT", "/chadow/users/alice/availability", `{"availability":"invisible"}`)
	for _, namespace := range []string{"chat", "chadow"} {
		for _, path := range []string{"users", "counts", "users/bob"} {
			_, replica := w.read("read", "GET", "/"+namespace+"/"+path, "")
			require.True(t, replica, "a leave is nothing that lists and others must have at once: %s of %s", path, namespace)
		}
	}
	w.settle()
	w.store.now++ // or saying invisible again would be the same request, which is sent once more
	return w
}

// settle waits until the replica answers all requests in both namespaces.
func (w replicaTwins) settle() {
	w.t.Helper()
	for _, namespace := range []string{"/chat", "/chadow"} {
		for _, user := range []string{"alice", "bob"} {
			w.fromReplica("GET", namespace+"/users/"+user, "")
		}
		w.fromReplica("GET", namespace+"/users", "")
	}
}

// write sends a request of a key that can write. It must succeed.
func (w replicaTwins) write(method, path, body string) {
	w.t.Helper()
	r := w.send(method, path, body, "Authorization: "+w.keys["ping"])
	require.Less(w.t, r.status, 300, "%s %s: %s", method, path, r.body)
}

// compare fails the test unless the replica answers a key that only reads alike in both namespaces, after something.
func (w replicaTwins) compare(after string) {
	w.t.Helper()
	for request, body := range replicaRequests() {
		method, path, _ := strings.Cut(request, " ")
		left, replica := w.read("read", method, path, body)
		require.True(w.t, replica, "%s: %s of users who left", after, request)
		hidden, replica := w.read("read", method, strings.Replace(path, "chat", "chadow", 1), body)
		require.True(w.t, replica, "%s: %s of users who are invisible", after, request)
		require.Equal(w.t, http.StatusOK, hidden.status, hidden.body)
		require.Equal(w.t, left.header.Get("ETag"), hidden.header.Get("ETag"), "%s: %s", after, request)
		require.Equal(w.t, withoutCursor(left.body), withoutCursor(hidden.body), "%s: %s", after, request)
	}
}

// withoutCursor returns a response without the cursor at its end, which has the name of the namespace.
func withoutCursor(body string) string {
	before, _, _ := strings.Cut(body, `"next_cursor":"`)
	return before
}

// TestReplicaHidesTheInvisible: the header Lastseen-Age does not show that an invisible user goes on, over HTTP and on
// a connection.
func TestReplicaHidesTheInvisible(t *testing.T) {
	w := newReplicaTwins(t)
	w.compare("nothing")
	device := `{"device":{"id":"phone","kind":"mobile"}}`
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/users/alice/ping", ""},
		{"POST", "/users/alice/ping", device},
		{"POST", "/pings", `{"pings":[{"user":"alice"}]}`},
		{"POST", "/users/alice/leave", device},
		{"POST", "/users/alice/leave", ""},
		{"PUT", "/users/alice/availability", `{"availability":"invisible","note":"still here"}`},
		{"PUT", "/users/alice/contacts", `{"users":["bob"]}`},
	} {
		w.write(r.method, "/chadow"+r.path, r.body)
		w.compare(r.method + " " + r.path + " " + r.body)
	}

	s := w.dialSocket("chadow", "Authorization: "+w.keys["alice"])
	s.send(`{"hello":{"user":"alice","device":{"id":"tab","kind":"web"}}}`)
	s.want(frameWelcome)
	w.compare("a connection")
	for _, frame := range []string{
		`{"activity":{"idle":true}}`, `{"activity":{"idle":false}}`, `{"typing":{"to":["bob"]}}`, `{"leave":{}}`,
	} {
		s.asksDespite(frame, frameOK, frameSelf)
		w.compare(frame)
	}
}

// TestReplicaShowsOthers: what is not hidden is read from the primary, also in a request with what is: otherwise
// [TestReplicaHidesTheInvisible] shows nothing.
func TestReplicaShowsOthers(t *testing.T) {
	w := newReplicaTwins(t)
	ownAfter := func(user, method, path, body string) {
		t.Helper()
		require.Eventually(t, func() bool { // a heartbeat can come in between
			w.write(method, path, body)
			_, replica := w.read("read", "GET", "/chadow/users/"+user, "")
			return !replica
		}, eventually, time.Millisecond, "%s %s %s", method, path, body)
	}
	ownAfter("bob", "POST", "/chadow/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	_, replica := w.read("read", "GET", "/chadow/users/alice", "")
	require.True(t, replica, "hidden in the same request")
	ownAfter("alice", "DELETE", "/chadow/users/alice/availability", "")
}
