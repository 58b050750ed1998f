//go:build faults

package faults

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestAliceOnThreeDevices has alice in two tabs of a browser and in a terminal. Each is closed in turn: she stays green
// until the last goodbye, and is grey everywhere within the grace and a second. Then she comes back, and her network is
// cut: she turns yellow and grey at the thresholds. All who watch her agree at every step.
func TestAliceOnThreeDevices(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	near, far := i.startHeld(t)
	trails := []*trail{watch(t, near, "alice", "1", "2"), watch(t, near)}
	agree := func(status lastseen.Status) (last sighting) {
		t.Helper()
		for _, tr := range trails {
			last = tr.await(t, "alice", status)
		}
		require.Equal(t, status, presenceOf(t, near, "alice").Status)
		return last
	}
	open := func(id, kind string) *socket {
		return connect(t, socketOptions{url: far.url, hello: device("alice", id, kind)})
	}
	devices := []*socket{open("tab-1", "web"), open("tab-2", "web"), open("terminal", "other")}
	agree(lastseen.Green)
	require.ElementsMatch(t, []string{"tab-1", "tab-2", "terminal"}, liveDevices(t, near))

	devices[0].close()
	passGrace(t, trails[0], far, "1", holdGrace)
	require.ElementsMatch(t, []string{"tab-2", "terminal"}, liveDevices(t, near))
	devices[1].close()
	passGrace(t, trails[0], far, "2", holdGrace)
	agree(lastseen.Green)
	require.ElementsMatch(t, []string{"terminal"}, liveDevices(t, near))
	closed := time.Now()
	devices[2].close()
	grey := agree(lastseen.Grey)
	took := grey.received.Sub(closed)
	t.Logf("grey %s after the last device was closed", took.Round(time.Millisecond))
	require.True(t, grey.Left)
	require.GreaterOrEqual(t, took, holdGrace)
	require.Less(t, took, 10*(holdGrace+time.Second)) // ten times what is promised
	require.Empty(t, liveDevices(t, near))
	require.Equal(t, lastseen.Grey, presenceOf(t, far, "alice").Status)

	open("tab-3", "web")
	agree(lastseen.Green)
	i.clients.unplug(t)
	agree(lastseen.Yellow)
	agree(lastseen.Grey)
	trails[0].requireDecay(t, "alice", holdThresholds())
	i.clients.plug(t)
	require.Equal(t, lastseen.Grey, presenceOf(t, far, "alice").Status)
	for n, tr := range trails {
		course := tr.course(t, "alice")
		if n == 0 { // who watches everyone is not sent who was not seen yet
			course = course[1:]
		}
		require.Equal(t, []string{"green", "left", "green", "yellow", "grey"}, course)
	}
}

// liveDevices returns the IDs of the devices of alice that count.
func liveDevices(t testing.TB, s *server) (ids []string) {
	t.Helper()
	r := s.request(t, http.MethodGet, "/v1/namespaces/chat/users/alice/devices")
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	var found struct {
		Devices []struct {
			ID   string `json:"id"`
			Live bool   `json:"live"`
		} `json:"devices"`
	}
	require.NoError(t, json.Unmarshal(r.body, &found), "%s", r.body)
	for _, d := range found.Devices {
		if d.Live {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
