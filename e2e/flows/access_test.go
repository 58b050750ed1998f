package flows

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// TestForgedCredentials sends each forged token in every place: it is refused, and neither the response nor the log
// contains it.
func TestForgedCredentials(t *testing.T) {
	t.Parallel()
	const mine = "/v1/namespaces/mine-1/users/alice"
	eachAuthServer(t, func(t *testing.T, g authServer) {
		refused := map[string]bool{}
		for what, forged := range g.forgedTokens(t) {
			for method, path := range map[string]string{"POST": mine + "/ping", "GET": mine, "DELETE": mine} {
				status, body := g.ask(t, method, path, "", bearer+forged)
				require.Equal(t, http.StatusUnauthorized, status, "%s: %s", what, body)
				refused[withoutID(t, body)] = true
			}
			if forged == "" {
				continue
			}
			status, body := g.ask(t, "POST", mine+"/leave", fmt.Sprintf(`{"token":%q}`, forged))
			require.Equal(t, http.StatusUnauthorized, status, "%s: %s", what, body)
			if len(forged) > 20 {
				require.NotContains(t, g.Log.String()+body, forged, what)
			}
		}
		require.Len(t, refused, 1, "the responses do not reveal what is wrong")
		require.Zero(t, g.seen(t, "mine-1"), "nothing was recorded")
		status, body := g.ask(t, "POST", mine+"/ping", "", bearer+g.good(t, nil))
		require.Equal(t, http.StatusOK, status, "a good token is accepted: %s", body)
	})
}

// withoutID returns a response without the request's own ID.
func withoutID(t *testing.T, body string) string {
	t.Helper()
	var answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	delete(answer, "request_id")
	return fmt.Sprint(answer)
}

// seen returns how many users a namespace has.
func (g authServer) seen(t *testing.T, namespace string) int {
	t.Helper()
	status, body := g.ask(t, "GET", "/v1/namespaces/"+namespace+"/counts", "", bearer+"ls_all")
	require.Equal(t, http.StatusOK, status, body)
	var counts struct{ Total int }
	require.NoError(t, json.Unmarshal([]byte(body), &counts))
	return counts.Total
}

// TestTamperedTokens changes every bit and the length of a good token.
func TestTamperedTokens(t *testing.T) {
	t.Parallel()
	const alice = "/v1/namespaces/mine-1/users/alice"
	eachAuthServer(t, func(t *testing.T, g authServer) {
		good := g.good(t, nil)
		refuses := func(forged string) {
			status, body := g.ask(t, "GET", alice, "", bearer+forged)
			// 400 is for what no header holds
			require.Contains(t, []int{http.StatusUnauthorized, http.StatusBadRequest}, status, "%q: %s", forged, body)
		}
		step := testenv.Choose(1, 7)
		for i := 0; i < len(good); i += step {
			refuses(good[:i])
			refuses(good[:i] + string([]byte{good[i] ^ 1<<(i%8)}) + good[i+1:])
			refuses(good[:i] + "A" + good[i:])
		}
		require.Zero(t, g.seen(t, "mine-1"))
	})
}

// TestMisplacedCredentials sends valid credentials in places where they must not be accepted.
func TestMisplacedCredentials(t *testing.T) {
	t.Parallel()
	const alice = "/v1/namespaces/mine-1/users/alice"
	eachAuthServer(t, func(t *testing.T, g authServer) {
		good := g.good(t, nil)
		for _, headers := range [][]string{
			{bearer + good, bearer + good},
			{bearer + good, bearer + "ls_all"},
			{"Authorization: Basic dTpsc19hbGw="},
			{"Authorization: " + good},
			{"Authorization: Bearer"},
			{"Authorization:"},
			{"Authorization: Bearer\t" + good},
			{"Authorization: bearer=" + good},
			{bearer + good + ", Bearer ls_all"},
			{bearer + "\xff" + good},
			{"Proxy-Authorization: Bearer " + good},
			{"X-Api-Key: ls_all"},
			{"Cookie: token=" + good + "; Authorization=ls_all"},
			{"X-Forwarded-User: alice", "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1"},
		} {
			for _, request := range [][2]string{
				{"GET", alice},
				{"POST", alice + "/ping"},
				{"POST", "/v1/namespaces/mine-1/pings"},
			} {
				status, body := g.ask(t, request[0], request[1], "", headers...)
				require.Equal(t, http.StatusUnauthorized, status, "%q: %s", headers, body)
			}
		}
		for _, path := range []string{alice + "?access_token=" + good, alice + "?token=ls_all", alice + "?key=ls_all"} {
			status, body := g.ask(t, "GET", path, "")
			require.Equal(t, http.StatusUnauthorized, status, "%s: %s", path, body)
		}
		status, body := g.ask(t, "POST", alice+"/ping", fmt.Sprintf(`{"token":%q}`, good))
		require.Equal(t, http.StatusUnauthorized, status, "a ping takes no token in its body: %s", body)
		status, body = g.ask(t, "POST", alice+"/leave", `{"token":"ls_all"}`)
		require.Equal(t, http.StatusUnauthorized, status, "a key is not a token: %s", body)
		status, body = g.ask(t, "POST", alice+"/leave", fmt.Sprintf(`{"token":%q}`, good), bearer+"ls_nobody")
		require.Equal(t, http.StatusUnauthorized, status, "a token in the body replaces no header: %s", body)
		require.Zero(t, g.seen(t, "mine-1"))
	})
}

// TestPermissionsAreNotExceeded sends requests that valid credentials do not permit, in many spellings.
func TestPermissionsAreNotExceeded(t *testing.T) {
	t.Parallel()
	eachAuthServer(t, func(t *testing.T, g authServer) {
		everything := func(namespace string) (list string) {
			_, list = g.ask(t, "GET", "/v1/namespaces/"+namespace+"/users?as_of=2000000000&limit=1000", "",
				bearer+"ls_all")
			return list
		}
		for _, namespace := range []string{"mine-1", "yours", "mine"} {
			status, body := g.ask(t, "POST", "/v1/namespaces/"+namespace+"/pings",
				`{"pings":[{"user":"alice","at":1},{"user":"bob","at":2},{"user":"carol","at":3}]}`, bearer+"ls_all")
			require.Equal(t, http.StatusOK, status, body)
		}
		before := everything("mine-1") + everything("yours") + everything("mine")
		alice := g.good(t, nil)
		for _, c := range [][3]string{
			{"POST", "mine-1/users/bob/ping", alice},
			{"POST", "mine-1/users/Alice/ping", alice},
			{"POST", "mine-1/users/alice%20/ping", alice},
			{"POST", "mine-1/users/alice%2F..%2Fbob/ping", alice},
			{"POST", "mine-1/users/alic%D0%B5/ping", alice}, // in Cyrillic
			{"POST", "mine-1/users/%61lice%252f/leave", alice},
			{"POST", "mine-1/pings", alice},
			{"POST", "mine-1/leaves", alice},
			{"POST", "yours/users/alice/ping", alice},
			{"POST", "mine-11/users/alice/ping", alice},
			{"POST", "MINE-1/users/alice/ping", alice},
			{"GET", "yours/users/alice", alice},
			{"GET", "yours/counts", alice},
			{"DELETE", "mine-1/users/alice", alice},
			{"DELETE", "mine-1?confirm=mine-1", alice},
			{"GET", "yours/users", "ls_reader"},
			{"GET", "mine/users", "ls_reader"},
			{"GET", "yours%2f..%2fmine-1/users", "ls_reader"},
			{"POST", "yours/lookup", "ls_reader"},
			{"POST", "mine-1/users/alice/ping", "ls_reader"},
			{"DELETE", "mine-1/users/alice", "ls_reader"},
			{"GET", "mine-1/users/alice", "ls_writer"},
			{"POST", "mine-1/lookup", "ls_writer"},
			{"HEAD", "mine-1/users", "ls_writer"},
			{"POST", "yours/users/alice/leave", "ls_writer"},
			{"DELETE", "mine-1?confirm=mine-1", "ls_writer"},
		} {
			status, body := g.ask(t, c[0], "/v1/namespaces/"+c[1], `{"pings":[{"user":"eve"}]}`, bearer+c[2])
			require.Equal(t, http.StatusForbidden, status, "%s: %s", c, body)
			require.NotContains(t, body, "last_seen")
		}
		require.Equal(t, before, everything("mine-1")+everything("yours")+everything("mine"), "nothing changed")
		status, body := g.ask(t, "GET", "/v1/namespaces/mine-1%2f..%2fyours/users", "", bearer+"ls_reader")
		require.Equal(t, http.StatusBadRequest, status, "the pattern matches, but this is not a namespace: %s", body)
		status, body = g.ask(t, "POST", "/v1/namespaces/mine-1/users/%61lice/ping", "", bearer+alice)
		require.Equal(t, http.StatusOK, status, "the same name, encoded: %s", body)
		g.checkListsHideOthers(t)
	})
}

// checkListsHideOthers checks that neither pages nor cursors of lists reveal what a caller is not allowed to read.
func (g authServer) checkListsHideOthers(t *testing.T) {
	t.Helper()
	for _, list := range []string{"/v1/namespaces?limit=1", "/v1/namespaces?limit=1000"} {
		_, body := g.ask(t, "GET", list, "", bearer+"ls_reader")
		var page struct {
			Namespaces []struct{ Namespace string }
			NextCursor *string `json:"next_cursor"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		require.Len(t, page.Namespaces, 1)
		require.Equal(t, "mine-1", page.Namespaces[0].Namespace)
		require.Nil(t, page.NextCursor, "the others are not even counted")
	}
	_, body := g.ask(t, "GET", "/v1/namespaces/yours/users?limit=1&as_of=2000000000", "", bearer+"ls_all")
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	for namespace, want := range map[string]int{"yours": http.StatusForbidden, "mine-1": http.StatusBadRequest} {
		status, body := g.ask(t, "GET", "/v1/namespaces/"+namespace+"/users?cursor="+page.NextCursor, "",
			bearer+"ls_reader")
		require.Equal(t, want, status, body)
	}
}
