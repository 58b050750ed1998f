package api_test

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
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
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
func hideCallees(t *testing.T, w *apitest.Server, known bool) {
	t.Helper()
	ctx := t.Context()
	at := kit.Now - 60_000
	for _, user := range []string{hiddenUser, hiddenBusyUser, leftUser} {
		_, err := w.Store.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: at}})
		require.NoError(t, err)
	}
	w.Ring("secret", "dave", hiddenBusyUser)
	w.Act("secret", hiddenBusyUser, lastseen.Accept)
	for _, user := range []string{hiddenUser, hiddenBusyUser} {
		invisible := lastseen.AvailabilityState{Availability: lastseen.Invisible}
		_, err := w.Store.SetAvailability(ctx, "chat", user, invisible, at+1)
		require.NoError(t, err)
		_, err = w.Store.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: kit.Now}})
		require.NoError(t, err)
	}
	_, err := w.Store.Leave(ctx, "chat", []store.PresenceEvent{{User: leftUser, At: at + 1}})
	require.NoError(t, err)
	for _, user := range []string{hiddenUser, hiddenBusyUser, leftUser, neverUser} {
		if known {
			kit.SetContacts(t, w.Store, user, "alice", "bob")
		}
	}
}

// look returns what a caller can see of a response about a call to a user.
func look(w *apitest.Server, user, credentials, method, path, body string, headers ...string) (kit.Response, string) {
	w.T.Helper()
	r := w.Send(method, path, body, append(headers, kit.HeadersOf(credentials)...)...)
	random := regexp.MustCompile(`"(id|request_id|created_at|ended_at|expires_at|cursor)":"[^"]+"`)
	text := random.ReplaceAllString(strings.ReplaceAll(r.Body, user, mask), `"$1":"…"`)
	return r, fmt.Sprint(r.Status, " ", slices.Sorted(maps.Keys(r.Header)), " ", text)
}

// askAbout sends all that callers can ask about a user, and returns what they see.
func askAbout(w *apitest.Server, user, caller string, headers map[string]string) (seen []string) {
	w.T.Helper()
	w.HangUp("alice")
	w.HangUp("bob")
	credentials, from := headers[caller], `"from":"alice",`
	if caller == "alice" {
		from = ""
	}
	ask := func(credentials, method, path, body string, headers ...string) kit.Response {
		w.T.Helper()
		r, text := look(w, user, credentials, method, path, body, headers...)
		seen = append(seen, text)
		return r
	}
	if caller != "ping" { // which cannot ask
		ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`","if":"present"}`)
	}
	key := "Idempotency-Key: " + user + caller
	r := ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`","app":{"offer":1}}`, key)
	ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`","app":{"offer":1}}`, key)
	ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`"}`)
	// Somebody who is with the caller calls at the same time.
	ask(headers["bob"], http.MethodPost, kit.CallsPath, `{"to":"`+user+`"}`)
	ask(headers["bob"], http.MethodPost, kit.CallsPath, `{"to":"`+user+`","if":"present"}`)
	if r.Status != http.StatusCreated {
		return seen
	}
	path := kit.CallPath(r.JSON(w.T))
	who := `{"user":"alice"}`
	ask(credentials, http.MethodPost, path+"/alive", `{"user":"alice","app":"more"}`)
	ask(credentials, http.MethodPost, path+"/accept", who)
	if caller != "ping" {
		ask(credentials, http.MethodGet, path, "")
		ask(credentials, http.MethodGet, kit.CallsPath+"?user=alice", "")
	}
	ask(credentials, http.MethodPost, path+"/end", who)
	ask(headers["bob"], http.MethodPost, kit.CallsPath, `{"to":"`+user+`"}`)
	w.HangUp("bob")

	// A call that nobody accepts.
	w.Config.Shared.ClearRedials() // other callers have called for alice
	w.Reload(func(c *api.Config) {
		c.Settings.RingTimeout, c.Settings.RedialWait = 30*time.Millisecond, 10*time.Second
	})
	r = ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`"}`)
	w.Reload(func(c *api.Config) { c.Settings.RingTimeout = 0 })
	path = kit.CallPath(r.JSON(w.T))
	require.Eventually(w.T, func() bool {
		return w.Send(http.MethodGet, path, "", kit.HeadersOf(headers["all"])...).JSON(w.T)["state"] == "missed"
	}, kit.Eventually, kit.Tick)
	ask(credentials, http.MethodPost, path+"/end", who)
	for _, when := range []string{"", `,"if":"present"`} {
		if caller == "ping" && when != "" {
			continue
		}
		r = ask(credentials, http.MethodPost, kit.CallsPath, `{`+from+`"to":"`+user+`"`+when+`}`)
		require.Contains(w.T, []string{"10", "9", ""}, r.Header.Get("Retry-After"))
	}
	w.Reload(func(c *api.Config) { c.Settings.RedialWait = 0 })
	return seen
}

// TestHiddenCallees: to those who call them, users who are invisible are like users who left, and like those never
// seen, also if they are in a call, by each response and all of its bytes but IDs and times.
func TestHiddenCallees(t *testing.T) {
	t.Parallel()
	authenticator, headers := kit.Callers(t)
	for name, open := range map[string]func(*testing.T) store.Store{"file": kit.FileStore, "redis": kit.NewRedis} {
		for visibility, change := range map[api.Visibility]func(*api.Config){
			api.VisibleToEveryone: func(*api.Config) {}, api.VisibleToContacts: apitest.ToContacts,
		} {
			t.Run(name+", "+string(visibility), func(t *testing.T) {
				t.Parallel()
				w := apitest.NewServer(t, open(t), change, func(c *api.Config) { c.Auth = authenticator })
				hideCallees(t, w, true)
				for _, caller := range privacyCallers() {
					want := askAbout(w, leftUser, caller, headers)
					require.Greater(t, len(want), 8)
					require.Contains(t, fmt.Sprint(want), problem.CallTooSoon)
					for _, user := range []string{neverUser, hiddenUser, hiddenBusyUser} {
						require.Equal(t, want, askAbout(w, user, caller, headers), "%s calls %s", caller, user)
					}
				}
				going, err := w.Store.ReadCalls(t.Context(), "chat", nil, []string{hiddenBusyUser})
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
	for name, open := range map[string]func(*testing.T) store.Store{"file": kit.FileStore, "redis": kit.NewRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, headers := apitest.NewVisibleServer(t, open(t))
			w.Post("/chat/users/online/ping", "", kit.HeadersOf(headers["all"])...)
			w.Ring("other", "carol", "inacall")
			w.Act("other", "inacall", lastseen.Accept)
			hideCallees(t, w, false)
			unseen := []string{"unknown", "online", "inacall", neverUser, leftUser, hiddenUser, hiddenBusyUser}
			kit.SetContacts(t, w.Store, "alice", unseen...)
			want := unavailable(w, headers["alice"], "", unseen...)
			require.Equal(t, want, unavailable(w, headers["alice"], `,"if":"present"`, unseen...))

			r := w.Send(http.MethodPost, kit.CallsPath, `{"from":"alice","to":"online"}`, kit.HeadersOf(headers["all"])...)
			require.Equal(t, http.StatusCreated, r.Status, r.Body)
			w.HangUp("alice")
			seen := []string{"online", neverUser, leftUser, hiddenUser, hiddenBusyUser}
			for _, user := range seen {
				kit.SetContacts(t, w.Store, user, "alice")
			}
			require.Equal(t, want, unavailable(w, headers["alice"], `,"if":"present"`, seen[1:]...))
			for user, when := range map[string]string{"online": `,"if":"present"`, hiddenUser: "", neverUser: ""} {
				r := w.Send(http.MethodPost, kit.CallsPath, `{"to":"`+user+`"`+when+`}`, kit.HeadersOf(headers["alice"])...)
				require.Equal(t, http.StatusCreated, r.Status, r.Body)
				w.HangUp("alice")
			}
		})
	}
}

// unavailable calls users, also with an idempotency key, and returns the response, which has to be the same for all.
func unavailable(w *apitest.Server, credentials, fields string, users ...string) (same string) {
	w.T.Helper()
	for i, user := range users {
		for _, key := range [][]string{nil, {"Idempotency-Key: " + user + fields}} {
			_, got := look(w, user, credentials, http.MethodPost, kit.CallsPath, `{"to":"`+user+`"`+fields+`}`, key...)
			require.Contains(w.T, got, problem.CalleeUnavailable)
			if i == 0 && key == nil {
				same = got
			}
			require.Equal(w.T, same, got, user)
		}
	}
	return same
}

// TestCallToHidden: an invisible user gets calls, and can accept them.
func TestCallToHidden(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	hideCallees(t, w, false)
	call := w.Call(`{"from":"alice","to":"` + hiddenUser + `"}`)
	require.Equal(t, []any{call}, w.Get(kit.CallsPath + "?user=" + hiddenUser)["calls"])
	w.Post(kit.CallPath(call)+"/accept", `{"user":"`+hiddenUser+`"}`)
}

// TestResponseBeforeSignals: the caller of an action has the response before anybody is signalled, so that it does not
// take longer if an invisible callee is connected.
func TestResponseBeforeSignals(t *testing.T) {
	t.Parallel()
	responded, signalled := make(chan struct{}, 1), make(chan struct{}, 1)
	w := apitest.NewSocketServerOn(t, kit.HookedFileStore(t, func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "Signal call") {
			select {
			case <-responded:
			case <-time.After(10 * time.Second):
				t.Error("signalled before the response")
			}
			signalled <- struct{}{}
		}
		return nil
	}))
	post := func(path, body string, status int) map[string]any {
		response := w.Send("POST", path, body).Is(t, status)
		responded <- struct{}{}
		<-signalled
		require.NotEmpty(t, response.Header.Get("Content-Length"))
		return response.JSON(t)
	}
	call := post("/chat/calls", `{"from":"alice","to":"bob"}`, http.StatusCreated)
	post(kit.CallPath(call)+"/accept", `{"user":"bob"}`, http.StatusOK)
	post(kit.CallPath(call)+"/end", `{"user":"alice"}`, http.StatusOK)
}
