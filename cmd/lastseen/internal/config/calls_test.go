package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCallSettings checks the bounds of ring-timeout and redial-wait, and that namespaces inherit and replace settings.
func TestCallSettings(t *testing.T) {
	const bounds = "the minimum is 1s, and the maximum 10m"
	for content, problem := range map[string]string{
		"ring-timeout: 999ms":                        "ring-timeout is 999ms (lastseen.yaml:1): " + bounds,
		"ring-timeout: 10m1s":                        "ring-timeout is 10m1s (lastseen.yaml:1): " + bounds,
		"namespaces:\n  chat: {}\nring-timeout: 11m": "ring-timeout is 11m (lastseen.yaml:3): " + bounds,
		"namespaces:\n  chat:\n    ring-timeout: 11m": "namespaces.chat.ring-timeout is 11m (lastseen.yaml:3): " +
			bounds,
		"redial-wait: 999ms": "redial-wait is 999ms (lastseen.yaml:1): the minimum is 1s, and the maximum 5m",
		"namespaces:\n  chat:\n    redial-wait: 6m": "namespaces.chat.redial-wait is 6m (lastseen.yaml:3): " +
			"the minimum is 1s, and the maximum 5m",
	} {
		require.Equal(t, []string{problem}, problemsOf(t, content))
	}
	c, err := loadText(t, "ring-timeout: 1s\nshow-calls: off\nnamespaces:\n  plain: {}\n  chat:\n"+
		"    ring-timeout: 10m\n    redial-wait: off\n    show-calls: on\n")
	require.NoError(t, err)
	for namespace, want := range map[string]time.Duration{"plain": time.Second, "chat": 10 * time.Minute} {
		settings := c.Namespace(namespace).ForAPI()
		require.Equal(t, want, settings.RingTimeout)
		require.Equal(t, namespace == "chat", settings.RedialWait == 0)
		require.Equal(t, namespace == "chat", settings.ShowCalls)
	}
	requireRoundTrip(t, c)

	c, err = loadText(t, "")
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, c.ForAPI().RingTimeout)
	require.Equal(t, 10*time.Second, c.ForAPI().RedialWait)
	require.True(t, c.ForAPI().ShowCalls)
}
