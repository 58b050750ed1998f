package testserver

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Events reads a stream of Server-Sent Events.
type Events struct {
	lines *bufio.Scanner
	ID    string // of the last event
	Retry string // the last advice
}

// ReadEvents returns a reader of a stream.
func ReadEvents(r io.Reader) *Events {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return &Events{lines: lines}
}

// Next returns the next event that is not a tick; "" and "" at the end of the stream.
func (e *Events) Next() (name, data string) {
	for name = "tick"; name == "tick"; {
		name, data = e.Any()
	}
	return name, data
}

// Any returns the next event; "" and "" at the end of the stream.
func (e *Events) Any() (name, data string) {
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			e.ID = value
		case "data":
			data = value
		case "retry":
			e.Retry = value
		case "":
			if name != "" {
				return name, data
			}
		}
	}
	return "", ""
}

// Until reads events until one has a text. A tick has none.
func (e *Events) Until(t *testing.T, text string) {
	t.Helper()
	for {
		name, data := e.Next()
		require.NotEmpty(t, name, "the stream ended before %q", text)
		if strings.Contains(data, text) {
			return
		}
	}
}

// Follow opens a stream of the changes at a path. It continues after the event of an ID, unless that is empty.
func (s *Server) Follow(t *testing.T, path, after string) *Events {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return ReadEvents(response.Body)
}
