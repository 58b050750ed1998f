package filestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/memstore"
)

var (
	busy      = lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "in a meeting"}
	away      = lastseen.AvailabilityState{Availability: lastseen.Away, Until: base + 1000}
	hiding    = memstore.Hidden{HiddenTime: lastseen.HiddenTime{End: base + 500}, Until: base + 500, Note: "not here"}
	wasHidden = memstore.Hidden{HiddenTime: lastseen.HiddenTime{End: base + 400, Ended: true}}
)

func TestRecordOfAvailability(t *testing.T) {
	var c changes
	for _, user := range []string{"alice", "bob", "carol", "dave"} {
		c.Set("chat", user, lastseen.State{At: base})
		c.SetAvailability("chat", user, busy)
		c.Hide("chat", user, hiding)
	}
	c.SetAvailability("chat", "never seen", lastseen.AvailabilityState{Note: "a note alone"})
	c.SetAvailability("chat", "alice", away)
	c.Hide("chat", "alice", wasHidden)
	c.Forget("chat", "bob")
	c.Trim("chat", "carol")
	c.SetAvailability("chat", "dave", lastseen.AvailabilityState{})
	c.Hide("chat", "dave", memstore.Hidden{})
	c.SetAvailability("dropped", "alice", busy)
	c.Drop("dropped")
	c.Set("unlisted", "alice", lastseen.State{At: base})
	c.Hide("unlisted", "alice", hiding)
	c.Unlist("unlisted")
	c.Hide("unlisted", "bob", hiding)
	c.Unlist("unlisted")
	c.Hide("back", "alice", hiding)
	c.Unlist("back")
	c.Set("back", "alice", lastseen.State{At: base})
	for _, runs := range [][][]byte{{c.buf}, {c.buf, c.buf}} {
		d := replayed(t, runs...)
		require.Equal(t, map[string]map[string]lastseen.State{
			"chat": {"alice": {At: base}, "dave": {At: base}}, "back": {"alice": {At: base}},
		}, d.states)
		require.Equal(t, map[string]string{
			"chat/alice": fmt.Sprint(away) + fmt.Sprint(wasHidden), "chat/carol": fmt.Sprint(busy) + fmt.Sprint(hiding),
			"chat/never seen":  fmt.Sprint(lastseen.AvailabilityState{Note: "a note alone"}),
			"(unlisted)/alice": fmt.Sprint(hiding), "(unlisted)/bob": fmt.Sprint(hiding),
			"back/alice": fmt.Sprint(hiding),
		}, d.availabilityTexts())
	}
	for cut := range c.buf {
		_ = replayError(c.buf[:cut]) // must not panic
	}
}
