package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// asUser sends a request of a user with a token and returns the status, or 0 without a response.
func asUser(s *testserver.Server, client *http.Client, token, method, path, body string) (status int) {
	request, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// manyContacts returns a body with 5,000 contacts, the most that a user can have. The IDs are long: they fill the body.
func manyContacts(t *testing.T, name string) string {
	t.Helper()
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%080d", name, i)
	}
	body, err := json.Marshal(map[string][]string{"users": ids})
	require.NoError(t, err)
	return string(body)
}

// TestPingsBesideLargeChangesOfContacts: while twelve users replace 5,000 contacts by 5,000 others again and again,
// at least 19 of 20 pings of others succeed, and the circuit breaker does not open. The settings of Redis are the
// defaults. With changes in one script, most pings fail; on a busy machine, a few do in any case.
func TestPingsBesideLargeChangesOfContacts(t *testing.T) {
	if !testenv.Full() {
		t.Skip("loads a Redis for many seconds")
	}
	const replacing, pinging, wanted, attempts = 12, 4, 40, 50
	const users = "/v1/namespaces/mine-1/users/"
	s := testserver.Start(t, "--admin-listen", "127.0.0.1:0", "--store", redistest.StartProcess(t).URL(),
		"--config", testserver.WriteConfig(t, testserver.Issuer+"user-rate-limit: off\njwt-secret-file: "+
			testserver.WriteFile(t, "secret", []byte(testserver.Secret))))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: replacing + pinging}}
	defer client.CloseIdleConnections()
	bodies := []string{manyContacts(t, "one"), manyContacts(t, "other")}
	var replaces, pings statuses
	var replacers, pingers sync.WaitGroup
	for i := range replacing {
		user := fmt.Sprintf("replaces-%d", i)
		token := testserver.UserToken(t, map[string]any{"sub": user})
		replacers.Go(func() {
			for n := 0; n < attempts && replaces.of(http.StatusNoContent) < wanted; n++ {
				replaces.count(asUser(s, client, token, http.MethodPut, users+user+"/contacts", bodies[n%2]))
			}
		})
	}
	var ended atomic.Bool
	for i := range pinging {
		user := fmt.Sprintf("pings-%d", i)
		token := testserver.UserToken(t, map[string]any{"sub": user})
		pingers.Go(func() {
			for !ended.Load() {
				pings.count(asUser(s, client, token, http.MethodPost, users+user+"/ping", ""))
			}
		})
	}
	replacers.Wait()
	ended.Store(true)
	pingers.Wait()
	t.Logf("replaced: %v, pinged: %v", replaces.counts, pings.counts)
	require.Subset(t, []int{http.StatusOK, http.StatusServiceUnavailable}, slices.Collect(maps.Keys(pings.counts)))
	require.Less(t, pings.of(http.StatusServiceUnavailable), pings.of(http.StatusOK)/20, "%s", s.Log)
	require.GreaterOrEqual(t, replaces.of(http.StatusNoContent), replacing)
	require.Subset(t, []int{http.StatusNoContent, http.StatusServiceUnavailable},
		slices.Collect(maps.Keys(replaces.counts)), "few large changes are made at a time")
	require.NotContains(t, s.Log.String(), "circuit breaker opened")
	require.Regexp(t, `\nlastseen_breaker_state\{[^}]*\} 0\n`, s.Metrics(t))
}

type statuses struct {
	mu     sync.Mutex
	counts map[int]int
}

func (s *statuses) count(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[int]int{}
	}
	s.counts[status]++
}

func (s *statuses) of(status int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[status]
}
