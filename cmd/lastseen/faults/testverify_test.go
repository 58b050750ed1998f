//go:build faults

package faults

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verify looks up all users with an acknowledged write at a server, and fails the test unless each is as the ledger
// requires. It returns the number of users.
func (l *ledger) verify(t testing.TB, server, namespace string) int {
	t.Helper()
	users := l.names()
	slices.Sort(users)
	for chunk := range slices.Chunk(users, 500) {
		found, began := lookUp(t, server, namespace, chunk)
		for _, user := range found.Users {
			l.check(user, found.evaluated, began)
		}
	}
	l.requireKept(t)
	return len(users)
}

// lookup is the response to a lookup of several users.
type lookup struct {
	evaluated
	Users []presence `json:"users"`
}

// lookUp looks up users. It returns when the lookup began.
func lookUp(t testing.TB, server, namespace string, users []string) (found lookup, began time.Time) {
	t.Helper()
	client := &http.Client{Timeout: awaitFor}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(map[string]any{"users": users})
	require.NoError(t, err)
	await(t, "a lookup of all users", func() bool { // an overloaded server refuses some
		began = time.Now()
		request, err := http.NewRequest(http.MethodPost, server+"/v1/namespaces/"+namespace+"/lookup",
			bytes.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		r, err := send(client, request)
		require.NoError(t, err)
		if r.status != http.StatusServiceUnavailable {
			require.Equal(t, http.StatusOK, r.status, "%s", r.body)
			require.NoError(t, json.Unmarshal(r.body, &found))
		}
		return r.status == http.StatusOK
	})
	require.Len(t, found.Users, len(users))
	return found, began
}

// requireKept fails the test if a response broke a rule of the ledger.
func (l *ledger) requireKept(t testing.TB) {
	t.Helper()
	if broken := l.broken(); len(broken) > 0 {
		t.Fatalf("rules of the ledger are broken:\n%s", strings.Join(broken, "\n"))
	}
}
