package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/calls"
)

// newPhone returns functions that call and act, on a server whose calls end on time.
func newPhone(
	t *testing.T, w *waitServer,
) (begin func(from, to string, headers ...string) string, act func(who string)) {
	w.config.Keeper = calls.New(w.config.Store, w.config.Logger)
	background(t, w.config.Keeper.Run)
	w.reload(func(c *Config) { c.Settings.RedialWait = 10 * time.Second })
	var path string
	begin = func(from, to string, headers ...string) string { // the call's state, or the error and Retry-After
		t.Helper()
		body := fmt.Sprintf(`{"from":%q,"to":%q}`, from, to)
		r := serve(*w.handler.Load(), "POST", "/v1/namespaces/chat/calls", body, headers...)
		got := testResponse{body: r.Body.String()}.json(t)
		if r.Code != http.StatusCreated {
			return strings.TrimSpace(fmt.Sprint(got["code"], " ", r.Header().Get("Retry-After")))
		}
		path = strings.TrimPrefix(callPath(got), "/chat")
		return fmt.Sprint(got["state"])
	}
	return begin, func(step string) {
		t.Helper()
		user, action, _ := strings.Cut(step, " ")
		w.do("POST", path+"/"+action, `{"user":"`+user+`"}`)
	}
}

// TestRedialWait: a caller who got no answer waits before calling the same user again, longer each time.
func TestRedialWait(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
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
				time.Sleep(DefaultRingTimeout)
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
		w.reload(func(c *Config) { c.Settings.RedialWait = 0 })
		require.Equal(t, "ringing", begin("alice", "bob"), "off")
	})
}

// TestRedialWaitIsForgotten: with the call, and with its users. Requests that are repeated return their call.
func TestRedialWaitIsForgotten(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		begin, act := newPhone(t, w)
		for _, forget := range []func(){
			func() { time.Sleep(11 * time.Minute) },
			func() { serve(*w.handler.Load(), "DELETE", "/v1/namespaces/chat/users/bob", "") },
			func() { serve(*w.handler.Load(), "DELETE", "/v1/namespaces/chat?confirm=chat", "") },
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

// TestAppChanges: while a call goes on, a party changes app a few times at once, and then twice a second.
func TestAppChanges(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		begin, _ := newPhone(t, w)
		change := func(user string) (status int) {
			call := firstOf(w.do("GET", "/calls?user=alice", ""), "calls")
			body := fmt.Sprintf(`{"user":%q,"app":%q}`, user, time.Now())
			return serve(*w.handler.Load(), "POST", "/v1/namespaces"+callPath(call)+"/alive", body).Code
		}
		require.Equal(t, "ringing", begin("alice", "bob"))
		changed := 0
		for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if change("alice") == http.StatusOK {
				changed++
			}
		}
		require.Equal(t, 10+2*10-1, changed)
		change("alice")
		require.Equal(t, http.StatusTooManyRequests, change("alice"))
		require.Equal(t, http.StatusOK, change("bob"))
	})
}
