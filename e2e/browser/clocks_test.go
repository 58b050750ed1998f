package browser

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// TestScriptSurvivesClocks: neither a computer that sleeps, when performance.now() may stand still, nor a clock that is
// set makes an old response look new, or stops the lookups.
func TestScriptSurvivesClocks(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", polling)
	b.Do(t, shows("alice", "green"))
	s.faults.mu.Lock()
	s.faults.now += 3_600_000
	s.faults.mu.Unlock()
	b.Do(t, until("(painted = [], wrong += 3_600_000)"), shows("alice", "grey")) // asleep
	require.NotContains(t, shown(t, b), "alice green")
	s.pingedAgo(t, "alice", 0)
	b.Do(t, until("wrong -= 7_200_000"), s.pass(37*time.Second), shows("alice", "green")) // set back
}

// TestScriptLookupsWait: a lookup that the server refuses is repeated, not before the time that the server asks for.
func TestScriptLookupsWait(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 0)
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/namespaces/chat/lookup" || r.Method == http.MethodOptions {
			return false
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		w.Header().Set("Retry-After", "40")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"store_unavailable"}`)
		return true
	})
	b := s.open(t, "", polling)
	s.untilLookups(t, 1)
	s.setAnswer(nil)
	b.Do(t, until(`statuses.alice === "green" || (passed += 200, false)`))
	require.GreaterOrEqual(t, testbrowser.Evaluate[int](t, b, "passed"), 20_000, "besides the time that the test took")
	require.Len(t, s.lookups(), 2)
}
