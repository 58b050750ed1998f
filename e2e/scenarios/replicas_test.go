package scenarios

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestReplicas runs a server that reads from a replica, and checks what a service and an operator see.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	redistest.StartReplica(t, primary, "--appendonly", "no")
	file := testserver.WriteConfig(t, fmt.Sprintf(`keys: {app: {hash: "%s", scopes: [ping, read], namespaces: [chat]}}`,
		testserver.HashOf("ls_app")))
	s := testserver.Start(t, "--config", file, "--admin-listen", "127.0.0.1:0", "--store", primary.URL(),
		"--redis-read-from", "replica", "--redis-max-lag", "1m",
		"--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	ageOf := func(method, path string) string {
		status, header, _ := s.Ask(t, method, path, "", bearer+"ls_app")
		require.Equal(t, http.StatusOK, status)
		return header.Get("Lastseen-Age")
	}
	require.Empty(t, ageOf("POST", alice+"/ping"))
	for _, path := range []string{alice, "/v1/namespaces/chat/users", "/v1/namespaces/chat/counts"} {
		require.Eventually(t, func() bool {
			return regexp.MustCompile(`^\d+\.\d{3}$`).MatchString(ageOf("GET", path))
		}, time.Minute, 20*time.Millisecond, path)
	}
	metrics := s.Metrics(t)
	require.Regexp(t, `lastseen_replica_reads_total{result="replica"} [1-9]`, metrics)
	require.Regexp(t, `lastseen_replica_reads_total{result="failed"} 0`, metrics)
	for _, operation := range []string{"lookup", "list", "count"} {
		require.Regexp(t, `duration_seconds_count{operation="replica_`+operation+`",outcome="ok"} [1-9]`, metrics)
	}
	require.Contains(t, metrics, "\nlastseen_replica_age_seconds ")
}
