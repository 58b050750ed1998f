package presencetests

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
)

// talk has two users be in a call on a server, and returns how to end it.
func talk(w *apitest.Server, from, to string) (end func()) {
	w.T.Helper()
	path, by := kit.CallPath(w.Call(`{"from":"`+from+`","to":"`+to+`"}`)), `{"user":"`+to+`"}`
	w.Post(path+"/accept", by)
	return func() { w.Post(path+"/end", by) }
}

// TestInCallIsShown: everything that shows a user shows that the user is in a call, on all servers, and changes follow.
func TestInCallIsShown(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		one.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"zoe"}]}`)
		one.Write("PUT", "/chat/users/zoe/contacts", `{"users":["alice","bob","carol"]}`)
		watcher, _ := two.Hello(`{"watch":{"users":["alice"]}}`)
		poll := func(cursor string) map[string]any {
			return two.Get("/chat/changes?user=alice&user=zoe&wait=5s" + cursor)
		}
		first := poll("")
		require.NotContains(t, first["users"].([]any)[0], "in_call")
		shows := func(inCall any) {
			t.Helper()
			alice := two.Get(kit.AliceUser)
			require.Equal(t, []any{"green", inCall}, []any{alice["status"], alice["in_call"]})
			for _, path := range []string{
				kit.AliceLookup, "/chat/users?order=oldest", "/chat/users/zoe/contacts", "/chat/changes?user=alice",
			} {
				for _, u := range two.Get(path)["users"].([]any) {
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
			got := kit.FirstOf(watcher.Want("changes"), "users")
			require.Equal(t, []any{"alice", inCall}, []any{got["user"], got["in_call"]})
			next := poll("&cursor=" + cursor)
			require.Len(t, next["users"], 1)
			require.Equal(t, inCall, kit.FirstOf(next, "users")["in_call"])
			shows(inCall)
			return next
		}
		shows(nil)
		tag := two.Send("GET", kit.AliceUser, "").Header.Get("ETag")
		end := talk(one, "alice", "bob")
		next := changed(kit.CursorOf(first), true)
		two.Send("GET", kit.AliceUser, "", "If-None-Match: "+tag).Is(t, http.StatusOK)
		require.Equal(t, []string{"alice", "bob"}, kit.Names(two.Get("/chat/users/zoe/contacts?in_call=true")))
		_, red := shapeOf(lastseen.RedDot)
		require.Contains(t, two.Send("GET", aliceDot, "").Body, red)
		end()
		changed(kit.CursorOf(next), nil)
		require.Empty(t, kit.Names(two.Get("/chat/users/zoe/contacts?in_call=true")))
	})
}

// TestInCallIsNotShown: with show-calls off, no response or frame shows that users are in a call. The parties get their
// calls as always. The setting applies to calls that are started later.
func TestInCallIsNotShown(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		showCalls := func(on bool) {
			for _, w := range []*apitest.Server{one, two} {
				w.Reload(func(c *api.Config) { c.Settings.ShowCalls = on })
			}
		}
		showCalls(false)
		one.Write("PUT", "/chat/users/zoe/contacts", `{"users":["alice","bob"]}`)
		alice, _ := one.Hello(`{"user":"alice"}`)
		bob, _ := two.Hello(`{"user":"bob"}`)
		one.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
		watcher, welcome := two.Hello(`{"watch":{"users":["alice"]}}`)
		require.Equal(t, "green", kit.FirstOf(welcome, "users")["status"])
		since := kit.CursorOf(two.Get("/chat/changes?user=alice&user=bob"))
		hidden := func() {
			t.Helper()
			for _, path := range []string{
				kit.AliceUser, "/chat/lookup?user=alice&user=bob", "/chat/users?order=oldest", "/chat/users/zoe/contacts",
				"/chat/changes?user=alice&user=bob", "/chat/changes?user=alice&user=bob&cursor=" + since,
			} {
				require.NotContains(t, two.Send("GET", path, "").Body, "in_call", path)
			}
			require.Empty(t, kit.Names(two.Get("/chat/users/zoe/contacts?in_call=true")))
			_, red := shapeOf(lastseen.RedDot)
			require.NotContains(t, two.Send("GET", aliceDot, "").Body, red)
			_, snapshot := two.Hello(`{"watch":{"users":["alice","bob"]}}`)
			require.Len(t, snapshot["users"], 2)
			require.NotContains(t, fmt.Sprint(snapshot["users"]), "in_call")
		}
		accept := func(call map[string]any) {
			t.Helper()
			for _, party := range []*kit.Socket{alice, bob} {
				kit.WantCall(t, party, call, lastseen.Ringing)
			}
			two.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
			for _, party := range []*kit.Socket{alice, bob} {
				kit.WantCall(t, party, call, lastseen.Active)
			}
		}
		call := one.Call(`{"from":"alice","to":"bob"}`)
		accept(call)
		hidden()
		showCalls(true)
		one.Post(kit.CallPath(call)+"/alive", `{"user":"alice"}`)
		hidden()
		one.Post(kit.CallPath(call)+"/end", `{"user":"alice"}`)
		for _, party := range []*kit.Socket{alice, bob} {
			kit.WantCall(t, party, call, lastseen.Ended)
		}

		// Nothing of the first call came before the note: the watcher would have been sent that it began, or that it is
		// over.
		one.Say(`{"note":"between calls"}`)
		got := kit.FirstOf(watcher.Want("changes"), "users")
		require.Equal(t, []any{"between calls", nil}, []any{got["note"], got["in_call"]})
		kit.WantSelf(t, alice, kit.Saying(nil, "between calls", nil))
		accept(one.Call(`{"from":"alice","to":"bob"}`))
		require.Equal(t, true, kit.FirstOf(watcher.Want("changes"), "users")["in_call"])
		require.Equal(t, []string{"alice", "bob"}, kit.Names(two.Get("/chat/users/zoe/contacts?in_call=true")))
	})
}
