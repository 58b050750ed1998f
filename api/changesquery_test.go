package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcceptsEvents(t *testing.T) {
	for accept, want := range map[string]bool{
		"text/event-stream":                         true,
		"Text/Event-Stream":                         true,
		"text/event-stream;q=0.1":                   true,
		"text/event-stream;charset=utf-8":           true,
		"text/event-stream; charset=utf-8; q=0":     false,
		"text/event-stream, */*":                    true,
		"text/event-stream;q=0.5, */*":              true, // a wildcard is no preference for JSON
		"application/json, text/event-stream":       true,
		"application/json;q=0.9, text/event-stream": true,
		"":                 false,
		"*/*":              false,
		"text/*":           false,
		"application/json": false,
		"application/json, text/event-stream;q=0.9":      false,
		"text/event-stream;q=0":                          false,
		"text/event-stream;q=2":                          false, // malformed
		"text/event-stream2, text/html":                  false,
		"application/json, text/plain, */*":              false,
		"text/event-stream;q=0, text/event-stream;q=0.5": true,
	} {
		require.Equal(t, want, acceptsEvents([]string{accept}), accept)
	}
	require.False(t, acceptsEvents(nil))
	require.True(t, acceptsEvents([]string{"text/html", "text/event-stream"}), "in two headers")
}
