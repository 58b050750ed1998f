package browser

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/store"
)

// TestScriptFallsBack: a page that gets no WebSocket pings, and tries again later. It has one device at a time.
func TestScriptFallsBack(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.refuseSockets(http.StatusNotFound)
	b := s.openOnline(t, "")
	s.untilDevices(t, "alice", 1, 0)
	require.Equal(t, 2, s.connects())
	s.setAnswer(nil)
	b.Do(t, passIn(5*time.Minute))
	s.untilDevices(t, "alice", 1, 1)
	require.Equal(t, 3, s.connects())
	require.False(t, s.hasLeft(t))
	pings := testbrowser.Evaluate[int](t, b, "pings().length")
	b.Do(t, passIn(30*time.Second))
	require.Equal(t, pings, testbrowser.Evaluate[int](t, b, "pings().length"))
}

// TestScriptFallsBackLater: a page whose WebSocket worked pings while there is none, and goes on trying.
func TestScriptFallsBackLater(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, "Math.random = () => 0.01;")
	s.untilDevices(t, "alice", 1, 0)
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	b.Do(t, until("pings().length == 1"))
	require.GreaterOrEqual(t, s.connects(), 6)
	s.setAnswer(nil)
	b.Do(t, until(`requests.some(({ path }) => path === "leave")`))
	require.Empty(t, testbrowser.Evaluate[string](t, b, "refused.join()"))
}

// noDevices is a store whose namespaces have no devices.
type noDevices struct{ store.Store }

func (noDevices) RecordDevices(
	context.Context, string, time.Duration, []store.DeviceEvent,
) ([]lastseen.State, error) {
	return nil, store.ErrNoDevices
}

// TestScriptWithoutDevices: in a namespace without devices, a page pings without naming one.
func TestScriptWithoutDevices(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	without := noDevices{s.Store}
	s.config.Store, s.config.Connections = without, runRegistry(t, without, defaultThresholds())
	s.serveBy(api.NewShared(s.config))
	b := s.openOnline(t, "")
	require.Eventually(t, func() bool {
		states, _, err := s.Describe(t.Context(), "chat", []string{"alice"})
		return err == nil && states[0].At > 0
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "true,false", testbrowser.Evaluate[string](t, b, "pings().map(ping => 'device' in ping.body).join()"))
	require.Empty(t, testbrowser.Evaluate[string](t, b, "refused.join()"))
}

// TestScriptWithoutFeeds: in a namespace without a changes feed, a page looks users up, and keeps its own user online
// by the connection all the same.
func TestScriptWithoutFeeds(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	b := s.openOnline(t, sentScript)
	b.Do(t, until(`client.watch("bob", show)`), shows("bob", "grey"))
	require.JSONEq(t, `[{"add":["bob"],"remove":[]}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(watches())"))
	require.Len(t, s.lookups(), 1)
	s.untilDevices(t, "alice", 1, 0)
	require.Equal(t, 1, s.connects())
	require.Equal(t, 0, testbrowser.Evaluate[int](t, b, "pings().length"))
	b.Do(t, passIn(20*time.Second), passIn(20*time.Second))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "watches().length"), "not again for five minutes")
}
