package presencetests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// newPhone returns functions that call and act, on a server whose calls end on time.
func newPhone(
	t *testing.T, w *apitest.BubbleServer,
) (begin func(from, to string, headers ...string) string, act func(who string)) {
	w.Config.Calls = calls.New(w.Config.Store, w.Config.Logger)
	kit.Background(t, w.Config.Calls.Run, w.Config.Shared.Listen)
	w.Reload(func(c *api.Config) { c.Settings.RedialWait = 10 * time.Second })
	var path string
	begin = func(from, to string, headers ...string) string { // the call's state, or the error and Retry-After
		t.Helper()
		body := fmt.Sprintf(`{"from":%q,"to":%q}`, from, to)
		r := kit.Serve(*w.Handler.Load(), "POST", "/v1/namespaces/chat/calls", body, headers...)
		got := kit.Response{Body: r.Body.String()}.JSON(t)
		if r.Code != http.StatusCreated {
			return strings.TrimSpace(fmt.Sprint(got["code"], " ", r.Header().Get("Retry-After")))
		}
		path = strings.TrimPrefix(kit.CallPath(got), "/chat")
		return fmt.Sprint(got["state"])
	}
	return begin, func(step string) {
		t.Helper()
		user, action, _ := strings.Cut(step, " ")
		w.Do("POST", path+"/"+action, `{"user":"`+user+`"}`)
	}
}

// TestRedialWait: a caller who got no answer waits before calling the same user again, longer each time.
func TestRedialWait(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		begin, act := newPhone(t, w)
		for i, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
			require.Equal(t, "ringing", begin("alice", "bob"))
			require.Equal(t, "caller_busy", begin("alice", "bob"))
			switch i % 3 {
			case 0:
				act("alice end")
			case 1:
				act("bob reject")
			case 2:
				time.Sleep(api.DefaultRingTimeout)
			}
			require.Equal(t, fmt.Sprint("call_too_soon ", seconds), begin("alice", "bob"))
			for _, other := range [][2]string{{"alice", "carol"}, {"bob", "alice"}, {"carol", "bob"}} {
				require.Equal(t, "ringing", begin(other[0], other[1]))
				act(other[1] + " accept")
				act(other[0] + " end")
			}
			time.Sleep(time.Duration(seconds)*time.Second - time.Millisecond)
			require.Equal(t, "call_too_soon 1", begin("alice", "bob"), "and the refused calls have not made it longer")
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, "ringing", begin("alice", "bob"))
		act("bob accept")
		act("bob end")
		require.Equal(t, "ringing", begin("alice", "bob"), "an answer")
		act("alice end")
		require.Equal(t, "call_too_soon 10", begin("alice", "bob"))
		w.Reload(func(c *api.Config) { c.Settings.RedialWait = 0 })
		require.Equal(t, "ringing", begin("alice", "bob"), "off")
	})
}

// TestRedialWaitIsForgotten: with the call, and with its users. Requests that are repeated return their call.
func TestRedialWaitIsForgotten(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		begin, act := newPhone(t, w)
		for _, forget := range []func(){
			func() { time.Sleep(store.CallsKept + time.Second) },
			func() { kit.Serve(*w.Handler.Load(), "DELETE", "/v1/namespaces/chat/users/bob", "") },
			func() { kit.Serve(*w.Handler.Load(), "DELETE", "/v1/namespaces/chat?confirm=chat", "") },
		} {
			require.Equal(t, "ringing", begin("alice", "bob", "Idempotency-Key: 1"))
			require.Equal(t, "caller_busy", begin("alice", "bob", "Idempotency-Key: 2"))
			act("bob reject")
			require.Equal(t, "call_too_soon 10", begin("alice", "bob"))
			require.Equal(t, "call_too_soon 10", begin("alice", "bob", "Idempotency-Key: 2"))
			require.Equal(t, "rejected", begin("alice", "bob", "Idempotency-Key: 1"))
			require.Equal(t, "idempotency_key_reused", begin("alice", "carol", "Idempotency-Key: 1"))
			forget()
		}
	})
}

// TestRedialClock: the wait begins at the end of the call, and a clock of the store that is wrong by years makes nobody
// wait for longer.
func TestRedialClock(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		clock := kit.NewClockStore(w.Config.Store) // whose calls have the time of the store in it
		w.Config.Store = clock
		begin, act := newPhone(t, w)
		reject := func(wait time.Duration, years int) (asked string) {
			t.Helper()
			require.Equal(t, "ringing", begin("alice", "bob"))
			act("bob reject")
			time.Sleep(wait)
			clock.Set(lastseen.InstantOf(time.Now().AddDate(years, 0, 0)))
			return begin("alice", "bob")
		}
		require.Equal(t, "call_too_soon 6", reject(4*time.Second, 0))
		time.Sleep(time.Minute)
		require.Equal(t, "call_too_soon 20", reject(0, -300))
		time.Sleep(20*time.Second - time.Millisecond)
		require.Equal(t, "call_too_soon 1", begin("alice", "bob"))
		time.Sleep(time.Millisecond)
		require.Equal(t, "ringing", reject(0, 300))
		act("bob reject")
		time.Sleep(11 * time.Minute)
		require.Equal(t, "call_too_soon 10", reject(0, 0))
	})
}

// TestAppChanges: a party changes app of a call ten times at once, and then twice a second, while it rings and later.
func TestAppChanges(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		begin, act := newPhone(t, w)
		change := func(user, action string) (status int) {
			call := kit.FirstOf(w.Do("GET", "/calls?user=alice", ""), "calls")
			body := fmt.Sprintf(`{"user":%q,"app":%q}`, user, time.Now())
			return kit.Serve(*w.Handler.Load(), "POST", "/v1/namespaces"+kit.CallPath(call)+"/"+action, body).Code
		}
		require.Equal(t, "ringing", begin("alice", "bob"))
		for _, party := range []string{"alice alive", "bob accept"} {
			user, action, _ := strings.Cut(party, " ")
			changed := 0
			for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
				if change(user, action) == http.StatusOK {
					changed++
				}
			}
			require.Equal(t, 10+2*10-1, changed, party)
			change(user, action)
			require.Equal(t, http.StatusTooManyRequests, change(user, action))
		}
		act("bob end")
	})
}
