package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const alicePing, aliceUser, aliceLookup = "/chat/users/alice/ping", "/chat/users/alice", "/chat/lookup?user=alice&user=zoe"

// TestFreshness checks how long a response may be cached: 5 seconds at most, and never past the instant at which a
// status in it changes.
func TestFreshness(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post(alicePing, "")
		for _, step := range []struct {
			age  time.Duration
			want string
			why  string
		}{
			{0, "max-age=5", "green for long"},
			{55 * time.Second, "max-age=5", "green for exactly 5 s"},
			{55*time.Second + time.Millisecond, "max-age=4", "4.999 s, rounded down"},
			{59*time.Second + time.Millisecond, "max-age=0", "0.999 s, rounded down"},
			{time.Minute, "max-age=5", "yellow for long"},
			{298 * time.Second, "max-age=2", "yellow for 2 s"},
			{5 * time.Minute, "max-age=5", "grey does not decay"},
		} {
			w.store.now = testNow.Add(step.age)
			for _, path := range []string{aliceUser, aliceLookup} {
				got := w.send(http.MethodGet, path, "")
				require.Equal(t, step.want, got.header.Get("Cache-Control"), "%s: %s", step.why, path)
				require.Regexp(t, `^W/"[A-Za-z0-9_-]{16}"$`, got.header.Get("ETag"))
			}
		}
		w.store.now = testNow.Add(time.Hour)
		past := w.send(http.MethodGet, aliceUser+"?as_of=2026-11-20T12:00:57Z", "")
		require.Equal(t, "max-age=3", past.header.Get("Cache-Control"), "an explicit as_of is the time that counts")
		w.store.now = testNow.Add(58 * time.Second)
		w.post("/chat/users/zoe/ping", "")
		lookup := w.send(http.MethodGet, aliceLookup, "")
		require.Equal(t, "max-age=2", lookup.header.Get("Cache-Control"), "the first of several to decay decides")
	})
}

// TestFreshnessOfDetails checks that a response may not be cached past the end of what a user says, by the server's
// clock, and that it is sent again as soon as something of it differs.
func TestFreshnessOfDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{Store: fileStore(t)}
	w := newTestServer(t, s)
	w.post(alicePing, "")
	until := testNow.Add(10 * time.Second)
	for _, path := range []string{aliceUser + "?", aliceLookup + "&", aliceDot + "?"} {
		tags := map[string]bool{}
		fetch := func(age time.Duration, query string, d store.Details, want string) {
			t.Helper()
			w.store.now, s.details = testNow.Add(age), map[string]store.Details{"alice": d}
			got := w.send(http.MethodGet, path+query, "")
			require.Equal(t, http.StatusOK, got.status, got.body)
			require.Equal(t, want, got.header.Get("Cache-Control"), "%s %s", path, age)
			tag := got.header.Get("ETag")
			tags[tag] = true
			require.Equal(t, http.StatusNotModified,
				w.send(http.MethodGet, path+query, "", "If-None-Match: "+tag).status)
		}
		busy := store.Details{Said: lastseen.Said{Availability: lastseen.Busy, Until: until}}
		fetch(0, "", store.Details{}, "max-age=5")
		fetch(0, "", busy, "max-age=5")
		fetch(5*time.Second, "", busy, "max-age=5")
		fetch(5001*time.Millisecond, "", busy, "max-age=4")
		fetch(9*time.Second, "", busy, "max-age=1")
		fetch(9001*time.Millisecond, "as_of=2026-11-20T12:00:00Z", busy, "max-age=0")
		require.Len(t, tags, 2, "nothing, and busy")
		fetch(10*time.Second, "", busy, "max-age=5")
		require.Len(t, tags, 2, "nothing again")
		busy.Said.Until = 0
		fetch(0, "", busy, "max-age=5")
		fetch(0, "", store.Details{Said: lastseen.Said{Availability: lastseen.Away}}, "max-age=5")
		fetch(0, "", store.Details{Said: lastseen.Said{Note: "lunch"}}, "max-age=5")
		fetch(0, "", store.Details{IdleSince: testNow}, "max-age=5")
		inCall := store.Details{InCallUntil: until}
		fetch(0, "", inCall, "max-age=5")
		fetch(9*time.Second, "", inCall, "max-age=1")
		inCall.InCallUntil += 1000 // it was renewed
		fetch(9*time.Second, "", inCall, "max-age=2")
		if path == aliceDot+"?" {
			require.Len(t, tags, 6, "it does not show the end")
		} else {
			require.Len(t, tags, 7)
		}
	}
}

// TestNotModified checks that a response is not sent again while the presence in it is the same, and is sent again
// as soon as it changes.
func TestNotModified(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		for _, path := range []string{aliceUser, aliceLookup} {
			w.store.now = testNow
			require.NoError(t, w.store.DeleteNamespace(t.Context(), "chat"))
			tag := ""
			changed := func(why string) {
				t.Helper()
				got := w.send(http.MethodGet, path, "", "If-None-Match: "+tag)
				require.Equal(t, http.StatusOK, got.status, why)
				require.NotEqual(t, tag, got.header.Get("ETag"), why)
				tag = got.header.Get("ETag")
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					same := w.send(method, path, "", "If-None-Match: "+tag)
					require.Equal(t, http.StatusNotModified, same.status, why)
					require.Empty(t, same.body)
					for _, name := range []string{"ETag", "Cache-Control"} {
						require.Equal(t, got.header.Get(name), same.header.Get(name), name)
					}
				}
			}
			changed("never seen")
			w.post(alicePing, "")
			changed("first ping")
			w.store.now = testNow.Add(10 * time.Second)
			later := w.send(http.MethodGet, path, "", "If-None-Match: "+tag)
			require.Equal(t, http.StatusNotModified, later.status, "only as_of is another")
			w.store.now = testNow.Add(time.Minute)
			changed("yellow by itself")
			w.post(alicePing, "")
			changed("pinged again")
			w.post("/chat/users/alice/leave", "")
			changed("left")
			w.store.now = testNow.Add(time.Hour)
			w.post(alicePing, "")
			w.store.now = testNow.Add(2 * time.Hour)
			changed("grey after another ping")
			require.NoError(t, w.store.Forget(t.Context(), "chat", "alice"))
			changed("forgotten")
		}
	})
}

// TestIfNoneMatch checks how the header is parsed: a list, weak or strong, or a star.
func TestIfNoneMatch(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	tag := w.send(http.MethodGet, aliceUser, "").header.Get("ETag")
	for header, want := range map[string]int{
		tag:                        http.StatusNotModified,
		tag[len("W/"):]:            http.StatusNotModified,
		`"x", ` + tag + ` , W/"y"`: http.StatusNotModified,
		"*":                        http.StatusNotModified,
		`"x"`:                      http.StatusOK,
		tag[len(`W/"`):]:           http.StatusOK,
		"":                         http.StatusOK,
	} {
		require.Equal(t, want, w.send(http.MethodGet, aliceUser, "", "If-None-Match: "+header).status, header)
	}
	two := w.send(http.MethodGet, aliceUser, "", `If-None-Match: "x"`, "If-None-Match: "+tag)
	require.Equal(t, http.StatusNotModified, two.status, "the header twice")
	bob := w.send(http.MethodGet, "/chat/users/bob", "", "If-None-Match: "+tag)
	require.Equal(t, http.StatusOK, bob.status, "another user")
}

// TestNotCached checks that other responses are not cached, including errors on the same paths.
func TestNotCached(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, r := range []testResponse{
		w.send(http.MethodPost, alicePing, ""),
		w.send(http.MethodPost, "/chat/users/alice/leave", ""),
		w.send(http.MethodPost, "/chat/lookup", `{"users":["alice"]}`),
		w.send(http.MethodGet, aliceUser+"?green=1h", ""),
		w.send(http.MethodGet, "/chat/lookup", ""),
		w.send(http.MethodGet, "/chat/users", ""),
		w.send(http.MethodGet, "/chat/counts", ""),
		w.send(http.MethodGet, "", ""),
		w.send(http.MethodGet, "/chat", ""),
		w.send(http.MethodDelete, aliceUser, ""),
	} {
		require.Equal(t, "no-store", r.header.Get("Cache-Control"), r.body)
		require.Empty(t, r.header.Get("ETag"))
	}
}

// TestPrivateCaching checks that responses to authenticated callers are private, and that shared caches may keep
// anonymous ones.
func TestPrivateCaching(t *testing.T) {
	authenticator, headers := callers(t)
	w := newAuthServer(t, fileStore(t), authenticator)
	open := newTestServer(t, fileStore(t))
	for _, path := range []string{"/%s/users/alice", "/%s/lookup?user=alice"} {
		for _, condition := range []string{"X: y", "If-None-Match: *"} {
			r := w.send(http.MethodGet, fmt.Sprintf(path, "chat"), "", "Authorization: "+headers["read"], condition)
			require.Equal(t, "private, max-age=5", r.header.Get("Cache-Control"))
			require.Equal(t, "Authorization", r.header.Get("Vary"))
			r = w.send(http.MethodGet, fmt.Sprintf(path, "public-1"), "", condition)
			require.Equal(t, "max-age=5", r.header.Get("Cache-Control"))
			require.Equal(t, "Authorization", r.header.Get("Vary"))
			r = open.send(http.MethodGet, fmt.Sprintf(path, "chat"), "", "Authorization: nonsense", condition)
			require.Equal(t, "max-age=5", r.header.Get("Cache-Control"))
			require.Empty(t, r.header.Get("Vary"), "who asks makes no difference")
		}
	}
	for _, path := range []string{"/chat/users", "/chat/counts", "/chat", ""} {
		require.Equal(t, "no-store", w.send(http.MethodGet, path, "",
			"Authorization: "+headers["read"]).header.Get("Cache-Control"))
	}
}

// TestThresholdsChangeTheETag checks that the ETag depends on the thresholds, because a client that gets 304 keeps
// the thresholds in its copy. This includes grey users, which have no valid_until.
func TestThresholdsChangeTheETag(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, path := range []string{"/chat/users/zoe", "/chat/lookup?user=zoe"} {
		tag := w.send(http.MethodGet, path, "").header.Get("ETag")
		for _, change := range []func(*Config){
			func(c *Config) { c.Settings.Thresholds.Green += time.Second },
			func(c *Config) { c.Settings.Thresholds.Yellow += time.Second },
		} {
			w.reload(change)
			changed := w.send(http.MethodGet, path, "", "If-None-Match: "+tag)
			require.Equal(t, http.StatusOK, changed.status, path)
			tag = changed.header.Get("ETag")
			require.Equal(t, http.StatusNotModified, w.send(http.MethodGet, path, "", "If-None-Match: "+tag).status,
				path)
		}
	}
}
