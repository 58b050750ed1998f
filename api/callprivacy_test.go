package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// Callees of the same length, whom a caller must not tell apart.
const (
	hiddenUser     = "hidden" // became invisible, and goes on pinging
	hiddenBusyUser = "hidbus" // the same, in a call
	leftUser       = "leftus" // left at the same time
	neverUser      = "neverx" // was never seen
	mask           = "somebody"
)

// privacyCallers are those who may know no more than what everyone sees. A service that calls for a user could pass on
// what it learns.
func privacyCallers() []string { return []string{"alice", "all", "ping"} }

// hideCallees records the callees. Each has alice, bob and their likes among their contacts, if known is true.
func hideCallees(t *testing.T, w *testServer, known bool) {
	t.Helper()
	ctx := t.Context()
	at := testNow - 60_000
	for _, user := range []string{hiddenUser, hiddenBusyUser, leftUser} {
		_, err := w.store.Ping(ctx, "chat", []store.Sighting{{User: user, At: at}})
		require.NoError(t, err)
	}
	w.ring("secret", "dave", hiddenBusyUser)
	w.act("secret", hiddenBusyUser, lastseen.Accept)
	for _, user := range []string{hiddenUser, hiddenBusyUser} {
		_, err := w.store.SetAvailability(ctx, "chat", user, lastseen.Said{Availability: lastseen.Invisible}, at+1)
		require.NoError(t, err)
		_, err = w.store.Ping(ctx, "chat", []store.Sighting{{User: user, At: testNow}})
		require.NoError(t, err)
	}
	_, err := w.store.Leave(ctx, "chat", []store.Sighting{{User: leftUser, At: at + 1}})
	require.NoError(t, err)
	for _, user := range []string{hiddenUser, hiddenBusyUser, leftUser, neverUser} {
		if known {
			know(t, w.store, user, "alice", "bob")
		}
	}
}

// look returns what a caller can see of a response about a call to a user.
func (w *testServer) look(user, credentials, method, path, body string, headers ...string) (testResponse, string) {
	w.t.Helper()
	r := w.send(method, path, body, append(headers, headersOf(credentials)...)...)
	random := regexp.MustCompile(`"(id|request_id|created_at|ended_at|expires_at|cursor)":"[^"]+"`)
	text := random.ReplaceAllString(strings.ReplaceAll(r.body, user, mask), `"$1":"…"`)
	return r, fmt.Sprint(r.status, " ", slices.Sorted(maps.Keys(r.header)), " ", text)
}

// askAbout sends all that callers can ask about a user, and returns what they see.
func (w *testServer) askAbout(user, caller string, headers map[string]string) (seen []string) {
	w.t.Helper()
	w.hangUp("alice")
	w.hangUp("bob")
	credentials, from := headers[caller], `"from":"alice",`
	if caller == "alice" {
		from = ""
	}
	ask := func(credentials, method, path, body string, headers ...string) testResponse {
		w.t.Helper()
		r, text := w.look(user, credentials, method, path, body, headers...)
		seen = append(seen, text)
		return r
	}
	if caller != "ping" { // which cannot ask
		ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`","if":"present"}`)
	}
	key := "Idempotency-Key: " + user + caller
	r := ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`","app":{"offer":1}}`, key)
	ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`","app":{"offer":1}}`, key)
	ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`"}`)
	// Somebody who is with the caller calls at the same time.
	ask(headers["bob"], http.MethodPost, callsPath, `{"to":"`+user+`"}`)
	ask(headers["bob"], http.MethodPost, callsPath, `{"to":"`+user+`","if":"present"}`)
	if r.status != http.StatusCreated {
		return seen
	}
	path := callPath(r.json(w.t))
	who := `{"user":"alice"}`
	ask(credentials, http.MethodPost, path+"/alive", `{"user":"alice","app":"more"}`)
	ask(credentials, http.MethodPost, path+"/accept", who)
	if caller != "ping" {
		ask(credentials, http.MethodGet, path, "")
		ask(credentials, http.MethodGet, callsPath+"?user=alice", "")
	}
	ask(credentials, http.MethodPost, path+"/end", who)
	ask(headers["bob"], http.MethodPost, callsPath, `{"to":"`+user+`"}`)
	w.hangUp("bob")

	// A call that nobody accepts.
	w.config.Shared.redials.last.Purge() // other callers have called for alice
	w.reload(func(c *Config) { c.Settings.RingTimeout, c.Settings.RedialWait = 30*time.Millisecond, 10*time.Second })
	r = ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`"}`)
	w.reload(func(c *Config) { c.Settings.RingTimeout = 0 })
	path = callPath(r.json(w.t))
	require.Eventually(w.t, func() bool {
		return w.send(http.MethodGet, path, "", headersOf(headers["all"])...).json(w.t)["state"] == "missed"
	}, eventually, tick)
	ask(credentials, http.MethodPost, path+"/end", who)
	for _, when := range []string{"", `,"if":"present"`} {
		if caller == "ping" && when != "" {
			continue
		}
		r = ask(credentials, http.MethodPost, callsPath, `{`+from+`"to":"`+user+`"`+when+`}`)
		require.Contains(w.t, []string{"10", "9", ""}, r.header.Get("Retry-After"))
	}
	w.reload(func(c *Config) { c.Settings.RedialWait = 0 })
	return seen
}

// TestHiddenCallees: to those who call them, users who are invisible are like users who left, and like those never
// seen, also if they are in a call, by each response and all of its bytes but IDs and times.
func TestHiddenCallees(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	for name, open := range map[string]func(*testing.T) store.Store{"file": fileStore, "redis": newRedis} {
		for visibility, change := range map[Visibility]func(*Config){
			VisibleToEveryone: func(*Config) {}, VisibleToContacts: toContacts,
		} {
			t.Run(name+", "+string(visibility), func(t *testing.T) {
				t.Parallel()
				w := newTestServer(t, open(t), change, func(c *Config) { c.Auth = authenticator })
				hideCallees(t, w, true)
				for _, caller := range privacyCallers() {
					want := w.askAbout(leftUser, caller, headers)
					require.Greater(t, len(want), 8)
					require.Contains(t, fmt.Sprint(want), problem.CallTooSoon)
					for _, user := range []string{neverUser, hiddenUser, hiddenBusyUser} {
						require.Equal(t, want, w.askAbout(user, caller, headers), "%s calls %s", caller, user)
					}
				}
				going, err := w.store.ReadCalls(t.Context(), "chat", nil, []string{hiddenBusyUser})
				require.NoError(t, err)
				require.Equal(t, "secret", going[0].ID)
			})
		}
	}
}

// TestUnseenCallees: where users are visible to contacts, a token cannot call those who do not have its user, whatever
// they do, and whether they are invisible. One who has its user and is invisible or left is like them to a call for
// those who are present. Services can call all.
func TestUnseenCallees(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) store.Store{"file": fileStore, "redis": newRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, headers := newVisibleServer(t, open(t))
			w.post("/chat/users/online/ping", "", headersOf(headers["all"])...)
			w.ring("other", "carol", "inacall")
			w.act("other", "inacall", lastseen.Accept)
			hideCallees(t, w, false)
			unseen := []string{"unknown", "online", "inacall", neverUser, leftUser, hiddenUser, hiddenBusyUser}
			know(t, w.store, "alice", unseen...)
			want := w.unavailable(headers["alice"], "", unseen...)
			require.Equal(t, want, w.unavailable(headers["alice"], `,"if":"present"`, unseen...))

			r := w.send(http.MethodPost, callsPath, `{"from":"alice","to":"online"}`, headersOf(headers["all"])...)
			require.Equal(t, http.StatusCreated, r.status, r.body)
			w.hangUp("alice")
			seen := []string{"online", neverUser, leftUser, hiddenUser, hiddenBusyUser}
			for _, user := range seen {
				know(t, w.store, user, "alice")
			}
			require.Equal(t, want, w.unavailable(headers["alice"], `,"if":"present"`, seen[1:]...))
			for user, when := range map[string]string{"online": `,"if":"present"`, hiddenUser: "", neverUser: ""} {
				r := w.send(http.MethodPost, callsPath, `{"to":"`+user+`"`+when+`}`, headersOf(headers["alice"])...)
				require.Equal(t, http.StatusCreated, r.status, r.body)
				w.hangUp("alice")
			}
		})
	}
}

// unavailable calls users, also with an idempotency key, and returns the response, which has to be the same for all.
func (w *testServer) unavailable(credentials, fields string, users ...string) (same string) {
	w.t.Helper()
	for i, user := range users {
		for _, key := range [][]string{nil, {"Idempotency-Key: " + user + fields}} {
			_, got := w.look(user, credentials, http.MethodPost, callsPath, `{"to":"`+user+`"`+fields+`}`, key...)
			require.Contains(w.t, got, problem.CalleeUnavailable)
			if i == 0 && key == nil {
				same = got
			}
			require.Equal(w.t, same, got, user)
		}
	}
	return same
}

// TestCallToHidden: an invisible user gets calls, and can accept them.
func TestCallToHidden(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	hideCallees(t, w, false)
	call := w.call(`{"from":"alice","to":"` + hiddenUser + `"}`)
	require.Equal(t, []any{call}, w.get(callsPath + "?user=" + hiddenUser)["calls"])
	w.post(callPath(call)+"/accept", `{"user":"`+hiddenUser+`"}`)
}

// TestResponseBeforeSignals: the caller of an action has the response before anybody is signalled, so that it does not
// take longer if an invisible callee is connected.
func TestResponseBeforeSignals(t *testing.T) {
	t.Parallel()
	responded, signalled := make(chan struct{}, 1), make(chan struct{}, 1)
	w := newSocketServerOn(t, &hookedStore{Store: fileStore(t), before: func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "Signal call") {
			select {
			case <-responded:
			case <-time.After(10 * time.Second):
				t.Error("signalled before the response")
			}
			signalled <- struct{}{}
		}
		return nil
	}})
	post := func(path, body string, status int) map[string]any {
		response := w.send("POST", path, body).is(t, status)
		responded <- struct{}{}
		<-signalled
		require.NotEmpty(t, response.header.Get("Content-Length"))
		return response.json(t)
	}
	call := post("/chat/calls", `{"from":"alice","to":"bob"}`, http.StatusCreated)
	post(callPath(call)+"/accept", `{"user":"bob"}`, http.StatusOK)
	post(callPath(call)+"/end", `{"user":"alice"}`, http.StatusOK)
}
