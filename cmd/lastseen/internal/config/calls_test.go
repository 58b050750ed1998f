package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCallSettings checks that namespaces inherit and replace settings, up to the bounds of ring-timeout.
func TestCallSettings(t *testing.T) {
	c := load(t, "ring-timeout: 1s\nshow-calls: off\nnamespaces:\n  plain: {}\n  chat:\n"+
		"    ring-timeout: 10m\n    redial-wait: off\n    show-calls: on\n")
	for namespace, want := range map[string]time.Duration{"plain": time.Second, "chat": 10 * time.Minute} {
		settings := c.Namespace(namespace).ForAPI()
		require.Equal(t, want, settings.RingTimeout)
		require.Equal(t, namespace == "chat", settings.RedialWait == 0)
		require.Equal(t, namespace == "chat", settings.ShowCalls)
	}
	requireRoundTrip(t, c)

	c = load(t, "")
	require.Equal(t, 30*time.Second, c.ForAPI().RingTimeout)
	require.Equal(t, 10*time.Second, c.ForAPI().RedialWait)
	require.True(t, c.ForAPI().ShowCalls)
}
