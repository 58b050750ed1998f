package api

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// watchContacts begins to follow the contacts of a user, until the test ends.
func (w *seenWorld) watchContacts(owner string, caller *auth.Caller, after ...store.Place) changesWatcher {
	w.t.Helper()
	watcher, err := w.servers[0].openContacts(w.t.Context(), "chat", owner, caller, after, free)
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

// TestWatchContacts: a service follows the contacts of a user, and who is added and removed, whoever sees whom.
func TestWatchContacts(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		key := &auth.Caller{Kind: auth.ByKey, Name: "key"}
		w.know("ann", "bob", "cat")
		w.know("bob", "dan")
		w.ping("bob", "dan", "ann")
		watcher := w.watchContacts("ann", key)
		require.Equal(t, "snapshot: bob green, cat never", told(w.poll(watcher)))
		require.Equal(t, 2, watcher.Len())
		w.leave("dan", "ann")
		w.know("bob", "ann")
		w.know("dan", "ann")
		require.Empty(t, w.settle(watcher), "they are no contacts of ann")
		w.ping("cat")
		require.Equal(t, []string{"cat green"}, w.settle(watcher))
		w.know("ann", "bob", "cat", "dan", "eve")
		require.Equal(t, []string{"dan grey left, eve never"}, w.settle(watcher))
		w.know("ann", "cat", "dan", "eve")
		require.Equal(t, []string{"bob never"}, w.settle(watcher))
		w.ping("bob")
		require.Empty(t, w.settle(watcher))
		w.knowQuietly("ann", "bob", "eve")
		require.Equal(t, "cat never, dan never, bob green", w.next(watcher, contactsReread+time.Second))
		w.forget("ann")
		require.Equal(t, []string{"bob never"}, w.settle(watcher))
		require.Equal(t, 0, watcher.Len())
		w.know("ann", "eve")
		require.Equal(t, []string{"eve never"}, w.settle(watcher))
	})
}

// TestWatchContactsContinues: a cursor leads to what differs, in contacts, too.
func TestWatchContactsContinues(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "bob", "cat")
		w.ping("bob")
		watcher := w.watchContacts("ann", nil)
		place := w.poll(watcher).Places[0]
		require.Empty(t, told(w.poll(w.watchContacts("ann", nil, place))))
		w.know("ann", "bob", "cat", "eve")
		require.Equal(t, []string{"eve never"}, w.settle(watcher))
		tick, ok := w.ticks(watcher)
		require.True(t, ok)
		require.Empty(t, told(w.poll(w.watchContacts("ann", nil, tick.Places[0]))))
		require.Equal(t, "reset: bob green, cat never, eve never", told(w.poll(w.watchContacts("ann", nil, place))))
		w.know("ann", "bob", "cat")
		require.Empty(t, w.settle(watcher), "eve looks as if they were removed")
		tick, ok = w.ticks(watcher)
		require.True(t, ok)
		require.Equal(t, place, tick.Places[0])

		w.know("ann", "bob", "cat", "eve", "fay")
		time.Sleep(time.Second)
		b, err := watcher.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, "eve never, fay never", told(b), "all at once")
		require.False(t, b.More)
		require.Empty(t, told(w.poll(w.watchContacts("ann", nil, b.Places[0]))))

		w.leave("bob")
		require.Equal(t, "bob grey left", w.next(watcher, time.Second))
		w.know("ann", "bob", "cat", "fay") // before the next batch can come
		synctest.Wait()
		tick, ok = w.ticks(watcher)
		require.True(t, ok)
		require.Empty(t, told(w.poll(w.watchContacts("ann", nil, tick.Places[0]))), "eve is not in the place")
	})
}

// TestWatchContactsVisible: where users are visible to contacts, users see only contacts who have them.
func TestWatchContactsVisible(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("vic", "ann", "sam")
		w.know("ann", "vic")
		w.ping("ann", "sam", "bea")
		watcher := w.watchContacts("vic", vic())
		require.Equal(t, "snapshot: ann green, sam never", told(w.poll(watcher)))
		w.know("sam", "vic")
		w.know("bea", "vic")
		require.Equal(t, []string{"sam green"}, w.settle(watcher))
		w.know("vic", "ann", "bea")
		require.Equal(t, []string{"sam never, bea green"}, w.settle(watcher))
		w.know("ann")
		require.Equal(t, []string{"ann never"}, w.settle(watcher))
	})
}

// TestChangesOfContacts: what contacts add and remove reaches streams and long polls on all servers, in a namespace
// where everyone sees everyone.
func TestChangesOfContacts(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		const contacts = "/chat/users/ann/contacts"
		one.post("/chat/users/bob/ping", "")
		one.write(http.MethodPut, contacts, `{"users":["bob","cat"]}`)
		stream := two.follow(http.MethodGet, "/chat/changes?contacts_of=ann", "")
		first := stream.changes()
		require.Equal(t, []string{"bob green", "cat grey"}, statuses(first.data))
		one.write(http.MethodPatch, contacts, `{"add":["dan"]}`)
		require.Equal(t, []string{"dan grey"}, statuses(stream.changes().data))
		two.post("/chat/users/dan/ping", "")
		require.Equal(t, []string{"dan green"}, statuses(stream.changes().data))
		one.write(http.MethodPatch, contacts, `{"remove":["bob"]}`)
		last := stream.changes()
		require.Equal(t, []string{"bob grey"}, statuses(last.data))
		require.Nil(t, last.data["users"].([]any)[0].(map[string]any)["last_seen"])

		poll := one.get("/chat/changes?contacts_of=ann&wait=10ms&cursor=" + last.id)
		require.Equal(t, false, poll["reset"])
		require.Empty(t, statuses(poll))
		reset := one.get("/chat/changes?contacts_of=ann&cursor=" + first.id)
		require.Equal(t, true, reset["reset"])
		require.Equal(t, []string{"cat grey", "dan green"}, statuses(reset))
		posted := two.post("/chat/changes", `{"contacts_of":"ann"}`)
		require.Equal(t, []string{"cat grey", "dan green"}, statuses(posted))
		one.write(http.MethodDelete, "/chat/users/ann", "")
		require.Equal(t, []string{"dan grey"}, statuses(stream.changes().data))
		require.Empty(t, statuses(two.get("/chat/changes?contacts_of=ann")))
		require.Empty(t, statuses(two.get("/chat/changes?contacts_of=nobody")))
	})
}

// TestChangesOfContactsRefused: only those who can list contacts can follow them.
func TestChangesOfContactsRefused(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for query, want := range map[string]code{
		"contacts_of=ann&user=bob":       codeInvalidParameter,
		"contacts_of=":                   codeInvalidUser,
		"contacts_of=a%00":               codeInvalidUser,
		"contacts_of=ann&contacts_of=bo": codeInvalidParameter,
	} {
		w.fails(want, http.MethodGet, "/chat/changes?"+query, "")
	}
	w.fails(codeInvalidParameter, http.MethodPost, "/chat/changes", `{"contacts_of":"ann","users":[]}`)
	w.fails(codeInvalidUser, http.MethodPost, "/chat/changes", `{"contacts_of":""}`)

	authenticator, headers := callers(t)
	w.reload(func(c *Config) { c.Auth = authenticator })
	for caller, want := range map[string]code{
		"alice": "", "all": "", "bob": codeForbidden, "read": codeForbidden, "ping": codeForbidden,
		"nobody": codeUnauthenticated,
	} {
		if want == "" {
			r := w.send(http.MethodGet, "/chat/changes?contacts_of=alice", "", headersOf(headers[caller])...)
			require.Equal(t, http.StatusOK, r.status, caller)
			continue
		}
		w.fails(want, http.MethodGet, "/chat/changes?contacts_of=alice", "", headersOf(headers[caller])...)
	}
	w.fails(codeUnauthenticated, http.MethodGet, "/public-1/changes?contacts_of=alice", "")
}

// TestChangesOfContactsAreCharged: each contact counts as a request, like a user who is named, unless the client
// continues and nothing differs.
func TestChangesOfContactsAreCharged(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t, func(c *Config) {
		behindProxy(c)
		c.Limits = limit.Limits{Caller: 4} // at once 20 requests, or half of them for users
	})
	require.NoError(t, w.store.SetContacts(t.Context(), "chat", "ann", strings.Split("abcdefghijkl", "")))
	const path = "/chat/changes?contacts_of=ann"
	alice, bob := from("203.0.113.7"), from("203.0.113.8")
	first := w.send(http.MethodGet, path, "", alice)
	require.Equal(t, http.StatusOK, first.status, "half of a burst")
	w.fails(codeRateLimited, http.MethodGet, path, "", alice)
	for range 3 {
		require.Equal(t, http.StatusOK, w.send(http.MethodGet, path+"&cursor="+cursorOf(first.json(t)), "", bob).status)
	}
	w.fails(codeRateLimited, http.MethodGet, path+"&cursor="+changesCursor("chat", []store.Place{"x"}), "", alice)
}
