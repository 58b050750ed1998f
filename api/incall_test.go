package api

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// talk has two users be in a call on a server, and returns how to end it.
func talk(t *testing.T, w *testServer, from, to string) (end func()) {
	t.Helper()
	keeper, id := w.config.Shared.newest.Load().Keeper, from+"-"+to
	_, finish, err := keeper.Start(t.Context(), "chat", store.NewCall{
		ID: id, From: from, To: to, Ring: time.Minute, Quiet: time.Minute, Shown: true,
	})
	require.NoError(t, err)
	finish()
	act := func(action lastseen.CallAction) {
		t.Helper()
		step, finish, err := keeper.Act(t.Context(), "chat", store.CallAct{ID: id, User: to, Action: action})
		require.NoError(t, err)
		finish()
		require.Equal(t, lastseen.Stepped, step.Outcome)
	}
	act(lastseen.Accept)
	return func() { act(lastseen.End) }
}

// TestInCallIsShown: everything that shows a user shows that the user is in a call, on all servers, and changes follow.
func TestInCallIsShown(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		one.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"zoe"}]}`)
		one.write("PUT", "/chat/users/zoe/contacts", `{"users":["alice","bob","carol"]}`)
		watcher, _ := two.hello(`{"watch":{"users":["alice"]}}`)
		poll := func(cursor string) map[string]any {
			return two.get("/chat/changes?user=alice&user=zoe&wait=5s" + cursor)
		}
		first := poll("")
		require.NotContains(t, first["users"].([]any)[0], "in_call")
		shows := func(inCall any) {
			t.Helper()
			alice := two.get(aliceUser)
			require.Equal(t, []any{"green", inCall}, []any{alice["status"], alice["in_call"]})
			for _, path := range []string{
				aliceLookup, "/chat/users?order=oldest", "/chat/users/zoe/contacts", "/chat/changes?user=alice",
			} {
				for _, u := range two.get(path)["users"].([]any) {
					u := u.(map[string]any)
					want := inCall
					if u["user"] == "zoe" || u["user"] == "carol" {
						want = nil
					}
					require.Equal(t, want, u["in_call"], "%s: %v", path, u)
				}
			}
		}
		changed := func(cursor string, inCall any) map[string]any {
			t.Helper()
			got := firstOf(watcher.want(frameChanges), "users")
			require.Equal(t, []any{"alice", inCall}, []any{got["user"], got["in_call"]})
			next := poll("&cursor=" + cursor)
			require.Len(t, next["users"], 1)
			require.Equal(t, inCall, firstOf(next, "users")["in_call"])
			shows(inCall)
			return next
		}
		shows(nil)
		tag := two.send("GET", aliceUser, "").header.Get("ETag")
		end := talk(t, one, "alice", "bob")
		next := changed(cursorOf(first), true)
		two.send("GET", aliceUser, "", "If-None-Match: "+tag).is(t, http.StatusOK)
		require.Equal(t, []string{"alice", "bob"}, names(two.get("/chat/users/zoe/contacts?in_call=true")))
		_, red := dotShape(lastseen.RedDot)
		require.Contains(t, two.send("GET", aliceDot, "").body, red)
		end()
		changed(cursorOf(next), nil)
		require.Empty(t, names(two.get("/chat/users/zoe/contacts?in_call=true")))
	})
}

// TestInCallIsNotShown: with show-calls off, no response or frame shows that users are in a call. The parties get their
// calls as always. The setting applies to calls that are started later.
func TestInCallIsNotShown(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		showCalls := func(on bool) {
			for _, w := range []*testServer{one, two} {
				w.reload(func(c *Config) { c.Settings.ShowCalls = on })
			}
		}
		showCalls(false)
		one.write("PUT", "/chat/users/zoe/contacts", `{"users":["alice","bob"]}`)
		alice, _ := one.hello(`{"user":"alice"}`)
		bob, _ := two.hello(`{"user":"bob"}`)
		one.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
		watcher, welcome := two.hello(`{"watch":{"users":["alice"]}}`)
		require.Equal(t, "green", firstOf(welcome, "users")["status"])
		since := cursorOf(two.get("/chat/changes?user=alice&user=bob"))
		hidden := func() {
			t.Helper()
			for _, path := range []string{
				aliceUser, "/chat/lookup?user=alice&user=bob", "/chat/users?order=oldest", "/chat/users/zoe/contacts",
				"/chat/changes?user=alice&user=bob", "/chat/changes?user=alice&user=bob&cursor=" + since,
			} {
				require.NotContains(t, two.send("GET", path, "").body, "in_call", path)
			}
			require.Empty(t, names(two.get("/chat/users/zoe/contacts?in_call=true")))
			_, red := dotShape(lastseen.RedDot)
			require.NotContains(t, two.send("GET", aliceDot, "").body, red)
			_, snapshot := two.hello(`{"watch":{"users":["alice","bob"]}}`)
			require.Len(t, snapshot["users"], 2)
			require.NotContains(t, fmt.Sprint(snapshot["users"]), "in_call")
		}
		accept := func(call map[string]any) {
			t.Helper()
			for _, party := range []*testSocket{alice, bob} {
				wantCall(t, party, call, lastseen.Ringing)
			}
			two.post(callPath(call)+"/accept", `{"user":"bob"}`)
			for _, party := range []*testSocket{alice, bob} {
				wantCall(t, party, call, lastseen.Active)
			}
		}
		call := one.call(`{"from":"alice","to":"bob"}`)
		accept(call)
		hidden()
		showCalls(true)
		one.post(callPath(call)+"/alive", `{"user":"alice"}`)
		hidden()
		one.post(callPath(call)+"/end", `{"user":"alice"}`)
		for _, party := range []*testSocket{alice, bob} {
			wantCall(t, party, call, lastseen.Ended)
		}

		// Nothing of the first call came before the note: the watcher would have been sent that it began, or that it is
		// over.
		one.say(`{"note":"between calls"}`)
		got := firstOf(watcher.want(frameChanges), "users")
		require.Equal(t, []any{"between calls", nil}, []any{got["note"], got["in_call"]})
		wantSelf(t, alice, saying(nil, "between calls", nil))
		accept(one.call(`{"from":"alice","to":"bob"}`))
		require.Equal(t, true, firstOf(watcher.want(frameChanges), "users")["in_call"])
		require.Equal(t, []string{"alice", "bob"}, names(two.get("/chat/users/zoe/contacts?in_call=true")))
	})
}

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
		one.write("PUT", contacts, `{"users":["bob","cat"]}`)
		stream := two.follow("GET", "/chat/changes?contacts_of=ann", "")
		first := stream.changes()
		require.Equal(t, []string{"bob green", "cat grey"}, statuses(first.data))
		one.write("PATCH", contacts, `{"add":["dan"]}`)
		require.Equal(t, []string{"dan grey"}, statuses(stream.changes().data))
		two.post("/chat/users/dan/ping", "")
		require.Equal(t, []string{"dan green"}, statuses(stream.changes().data))
		one.write("PATCH", contacts, `{"remove":["bob"]}`)
		last := stream.changes()
		require.Equal(t, []string{"bob grey"}, statuses(last.data))
		require.Nil(t, firstOf(last.data, "users")["last_seen"])

		poll := one.get("/chat/changes?contacts_of=ann&wait=10ms&cursor=" + last.id)
		require.Equal(t, false, poll["reset"])
		require.Empty(t, statuses(poll))
		reset := one.get("/chat/changes?contacts_of=ann&cursor=" + first.id)
		require.Equal(t, true, reset["reset"])
		require.Equal(t, []string{"cat grey", "dan green"}, statuses(reset))
		posted := two.post("/chat/changes", `{"contacts_of":"ann"}`)
		require.Equal(t, []string{"cat grey", "dan green"}, statuses(posted))
		one.write("DELETE", "/chat/users/ann", "")
		require.Equal(t, []string{"dan grey"}, statuses(stream.changes().data))
		require.Empty(t, statuses(two.get("/chat/changes?contacts_of=ann")))
		require.Empty(t, statuses(two.get("/chat/changes?contacts_of=nobody")))
	})
}

// TestChangesOfContactsRefused: only those who can list contacts can follow them.
func TestChangesOfContactsRefused(t *testing.T) {
	t.Parallel()
	w, headers := newGuardedServer(t)
	for caller, want := range map[string]int{
		"alice": 200, "all": 200, "bob": 403, "read": 403, "ping": 403, "nobody": 401,
	} {
		w.send("GET", "/chat/changes?contacts_of=alice", "", headersOf(headers[caller])...).is(t, want, caller)
	}
	w.fails(problem.Unauthenticated, "GET", "/public-1/changes?contacts_of=alice", "")
}
