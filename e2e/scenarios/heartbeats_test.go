package scenarios

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// none is the time of a heartbeat that does not arrive.
const none = -1

// heartbeat is one that arrives, and what others are shown then. Times are in seconds.
type heartbeat struct {
	sent int // by the app; or none
	now  int
	want string
	from string // the device; "" for an app without devices
}

// heartbeatScenarios are those of apps that send heartbeats over HTTP, as the messenger of chat_test.go and the
// presence service of devices_test.go do.
func heartbeatScenarios() map[string]struct {
	green, yellow string
	all           []heartbeat
} {
	return map[string]struct {
		green, yellow string
		all           []heartbeat
	}{
		// "handleAppStateChange": every 30 seconds in AppStateForeground, and every 5 minutes in AppStateBackground. A
		// user who is silent for longer may be asleep, which is StatusAway, and after 30 minutes is StatusOffline. A
		// heartbeat of the background may be a minute late.
		"rates": {"6m", "30m", []heartbeat{
			{0, 0, "green", ""},
			{none, 29, "green", ""},
			{30, 30, "green", ""},
			{none, 360, "green", ""}, // in the background from here on
			{360, 360, "green", ""},
			{none, 659, "green", ""},
			{715, 715, "green", ""}, // late
			{none, 715 + 359, "green", ""},
			{none, 715 + 360, "yellow", ""}, // one does not come: StatusAway, until the next one
			{1315, 1315, "green", ""},
			{none, 1315 + 1799, "yellow", ""},
			{none, 1315 + 1800, "grey", ""},
			{3500, 3500, "green", ""},
		}},
		// Heartbeats that are lost, late, doubled and out of order. As with "MaxMissedHeartbeats", up to two in a row
		// can be lost: the user is StatusAway from 90 seconds of silence on, and "shouldMarkOffline" holds from 30
		// minutes on.
		"jitter": {"90s", "30m", []heartbeat{
			{0, 0, "green", ""},
			{30, 30, "green", ""},
			{none, 119, "green", ""}, // those of 60 and 90 are lost
			{none, 120, "yellow", ""},
			{60, 125, "green", ""}, // one of them arrives late
			{30, 149, "green", ""}, // an older one arrives again: it changes nothing
			{none, 150, "yellow", ""},
			{150, 150, "green", ""},
			{120, 239, "green", ""}, // out of order
			{none, 240, "yellow", ""},
			{none, 150 + 30*60 - 1, "yellow", ""},
			{none, 150 + 30*60, "grey", ""},
			{3000, 3000, "green", ""},
		}},
		// Devices that each "Refresh connection", and stop without a leave. Each keeps the user online; 60 seconds
		// after the last one of all devices, the user is not, and 10 minutes after it the user is offline.
		"devices": {"60s", "10m", []heartbeat{
			{0, 0, "green", "web"},
			{10, 10, "green", "phone"},
			{30, 30, "green", "web"}, // its last one
			{40, 40, "green", "phone"},
			{70, 70, "green", "phone"}, // its last one
			{none, 129, "green", ""},
			{none, 130, "yellow", ""},
			{none, 669, "yellow", ""},
			{none, 670, "grey", ""},
		}},
	}
}

// TestScenarioHeartbeats: see [heartbeatScenarios]. When the user was last seen is the time of the last heartbeat.
func TestScenarioHeartbeats(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	at := func(seconds int) string {
		return begin.Add(time.Duration(seconds) * time.Second).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	testserver.EachStore(t, func(t *testing.T, args []string) {
		for name, app := range heartbeatScenarios() {
			s := testserver.Start(t, append(slices.Clone(args), "--green", app.green, "--yellow", app.yellow)...)
			user, last := chatUsers+name, 0
			for _, b := range app.all {
				if b.sent != none {
					body := fmt.Sprintf(`{"at":%q}`, at(b.sent))
					if b.from != "" {
						body = fmt.Sprintf(`{"at":%q,"device":{"id":%q}}`, at(b.sent), b.from)
					}
					s.Post(t, user+"/ping", body)
					last = max(last, b.sent)
				}
				require.Equal(t, b.want, look(t, s, name, "?as_of="+at(b.now)), "%s: %+v", name, b)
			}
			require.Equal(t, at(last), s.Get(t, user)["last_seen"], name)
			require.Zero(t, s.Terminate(t))
		}
	})
}
