package coalesce

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestObserve: each batch is reported once, with how long its first call waited.
func TestObserve(t *testing.T) {
	var sent []string
	o := Options{Observe: func(kind string, members int, wait time.Duration) {
		sent = append(sent, fmt.Sprint(kind, " ", members, " ", wait))
	}}
	inBubble(t, o, []string{""}, func(r *rig) {
		r.ping("chat", "alice")
		r.ping("chat", "bob", "carol")
		time.Sleep(2 * time.Second) // by the bubble's clock
		r.ping("game", "dave")
		time.Sleep(time.Second)
		r.letGo(2)
		r.lookup("chat", "alice")
		r.letGo(1)
		require.Equal(r, []string{"ping 1 0s", "ping 3 3s", "lookup 1 0s"}, sent)
	})
}
