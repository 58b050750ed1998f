package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestLoad sends what it says, to a server on this machine unless told otherwise.
func TestLoad(t *testing.T) {
	s := testserver.Start(t)
	t.Setenv("LASTSEEN_SERVER", s.URL)
	code, out, log := runInProcess(strings.Fields("load chat --for 1s --pings 30 --lookups 20 --page 5 --users 2 --json")...)
	require.Zero(t, code, log)
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r struct {
			Kind         string
			Sent, Failed int
			P50          float64 `json:"p50_ms"`
			P90          float64 `json:"p90_ms"`
			P99          float64 `json:"p99_ms"`
			Max          float64 `json:"max_ms"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, []string{"pings", "lookups"}[i], r.Kind)
		require.Equal(t, []int{30, 20}[i], r.Sent)
		require.Zero(t, r.Failed)
		require.Positive(t, r.P50)
		require.IsNonDecreasing(t, []float64{r.P50, r.P90, r.P99, r.Max})
	}
	counts := s.Get(t, "/v1/namespaces/chat/counts")
	require.EqualValues(t, 2, counts["total"], "load-0 and load-1 pinged")

	code, out, log = runInProcess(strings.Fields("load chat --for 1s --pings 7 --lookups 0 --server http://127.0.0.1:1")...)
	require.Equal(t, 1, code)
	require.Regexp(t, `^ +SENT +FAILED  A SECOND  P50  P90  P99  MAX\npings  7 +7 +0\.0\n$`, out)
	require.Regexp(t, `^lastseen: 7 pings failed, the first with Post .*\nlastseen: not all requests succeeded\n$`, log)

	for line, want := range map[string]string{
		"--server http://192.0.2.1":                              "192.0.2.1 is not this machine",
		"--server http://example.org:8080 --pings 0 --lookups 0": "use 0 to 100000",
		"--page 0":                 "--page: use 1 to ",
		"--users 0":                "--users: use 1 to ",
		"--for 100ms":              "--for: use 1s or more",
		"--for 24h --pings 100000": "at most 10000000 requests",
	} {
		code, out, log := runInProcess(append([]string{"load", "chat"}, strings.Fields(line)...)...)
		require.Equal(t, 2, code, line)
		require.Empty(t, out)
		require.Contains(t, log, want)
	}
}
