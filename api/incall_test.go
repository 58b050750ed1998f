package api

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// talk has two users be in a call on a server, and returns how to end it.
func talk(t *testing.T, w *testServer, from, to string) (end func()) {
	t.Helper()
	keeper, id := w.config.Shared.newest.Load().Keeper, from+"-"+to
	_, err := keeper.Start(t.Context(), "chat", store.NewCall{
		ID: id, From: from, To: to, Ring: time.Minute, Quiet: time.Minute, Shown: true,
	})
	require.NoError(t, err)
	act := func(action lastseen.CallAction) {
		t.Helper()
		step, err := keeper.Act(t.Context(), "chat", store.CallAct{ID: id, User: to, Action: action})
		require.NoError(t, err)
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
		one.write(http.MethodPut, "/chat/users/zoe/contacts", `{"users":["alice","bob","carol"]}`)
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
				aliceLookup, "/chat/users?order=oldest", "/chat/users/zoe/contacts",
				"/chat/changes?user=alice",
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
			got := watcher.want(frameChanges)["users"].([]any)[0].(map[string]any)
			require.Equal(t, []any{"alice", inCall}, []any{got["user"], got["in_call"]})
			next := poll("&cursor=" + cursor)
			require.Len(t, next["users"], 1)
			require.Equal(t, inCall, next["users"].([]any)[0].(map[string]any)["in_call"])
			shows(inCall)
			return next
		}
		shows(nil)
		tag := two.send(http.MethodGet, aliceUser, "").header.Get("ETag")
		end := talk(t, one, "alice", "bob")
		next := changed(cursorOf(first), true)
		require.Equal(t, http.StatusOK, two.send(http.MethodGet, aliceUser, "", "If-None-Match: "+tag).status)
		require.Equal(t, []string{"alice", "bob"}, names(two.get("/chat/users/zoe/contacts?in_call=true")))
		_, red := dotShape(lastseen.RedDot)
		require.Contains(t, two.send(http.MethodGet, aliceDot, "").body, red)
		end()
		changed(cursorOf(next), nil)
		require.Empty(t, names(two.get("/chat/users/zoe/contacts?in_call=true")))
	})
}

// TestInCallOfHiddenUsers: an invisible user who is in a call, or begins one, looks like one who left.
func TestInCallOfHiddenUsers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		one.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"gone"}]}`)
		one.write(http.MethodPut, "/chat/users/zoe/contacts", `{"users":["alice","gone"]}`)
		first := two.get("/chat/changes?user=alice&user=gone")
		show := func(user string) (all []string) {
			for _, path := range []string{
				"/chat/users/" + user, "/chat/lookup?user=" + user, "/chat/users/" + user + "/dot.svg",
				"/chat/changes?user=" + user,
			} {
				text := strings.ReplaceAll(two.send(http.MethodGet, path, "").body, user, "user")
				all = append(all, regexp.MustCompile(`"[0-9T:.-]+Z"|"cursor":"[^"]*"`).ReplaceAllString(text, "…"))
			}
			return all
		}
		same := func() {
			t.Helper()
			hidden := show("alice")
			require.Equal(t, show("gone"), hidden)
			require.NotContains(t, strings.Join(hidden, ""), "call")
			require.Empty(t, names(two.get("/chat/users/zoe/contacts?in_call=true")))
		}
		end, endOther := talk(t, one, "alice", "bob"), talk(t, one, "gone", "carol")
		require.Equal(t, []string{"alice", "gone"}, names(two.get("/chat/users/zoe/contacts?in_call=true")))
		say(t, one, `{"availability":"invisible"}`)
		one.post("/chat/users/gone/leave", "")
		one.post(alicePing, "")
		same()
		end()
		endOther()
		same()
		talk(t, one, "dave", "alice")
		talk(t, one, "erin", "gone")
		same()
		changes := func() map[string]any {
			return two.get("/chat/changes?user=alice&user=gone&wait=1s&cursor=" + cursorOf(first))
		}
		for _, u := range changes()["users"].([]any) {
			require.Equal(t, []any{"grey", nil}, []any{u.(map[string]any)["status"], u.(map[string]any)["in_call"]})
		}
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
		one.write(http.MethodPut, "/chat/users/zoe/contacts", `{"users":["alice","bob"]}`)
		alice, _ := one.hello(`{"user":"alice"}`)
		bob, _ := two.hello(`{"user":"bob"}`)
		one.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
		watcher, welcome := two.hello(`{"watch":{"users":["alice"]}}`)
		require.Equal(t, "green", welcome["users"].([]any)[0].(map[string]any)["status"])
		since := cursorOf(two.get("/chat/changes?user=alice&user=bob"))
		hidden := func() {
			t.Helper()
			for _, path := range []string{
				aliceUser, "/chat/lookup?user=alice&user=bob", "/chat/users?order=oldest", "/chat/users/zoe/contacts",
				"/chat/changes?user=alice&user=bob", "/chat/changes?user=alice&user=bob&cursor=" + since,
			} {
				require.NotContains(t, two.send(http.MethodGet, path, "").body, "in_call", path)
			}
			require.Empty(t, names(two.get("/chat/users/zoe/contacts?in_call=true")))
			_, red := dotShape(lastseen.RedDot)
			require.NotContains(t, two.send(http.MethodGet, aliceDot, "").body, red)
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
		say(t, one, `{"note":"between calls"}`)
		got := watcher.want(frameChanges)["users"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"between calls", nil}, []any{got["note"], got["in_call"]})
		wantSelf(t, alice, saying(nil, "between calls", nil))
		accept(one.call(`{"from":"alice","to":"bob"}`))
		require.Equal(t, true, watcher.want(frameChanges)["users"].([]any)[0].(map[string]any)["in_call"])
		require.Equal(t, []string{"alice", "bob"}, names(two.get("/chat/users/zoe/contacts?in_call=true")))
	})
}
