package main

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// eventReader reads a stream of Server-Sent Events.
type eventReader struct {
	lines *bufio.Scanner
	id    string // of the last event
	retry string // the last advice
}

func readEvents(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return &eventReader{lines: lines}
}

// next returns the next event that is not a tick; "" and "" at the end of the stream.
func (e *eventReader) next() (name, data string) {
	for name = "tick"; name == "tick"; {
		name, data = e.any()
	}
	return name, data
}

// any returns the next event; "" and "" at the end of the stream.
func (e *eventReader) any() (name, data string) {
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			e.id = value
		case "data":
			data = value
		case "retry":
			e.retry = value
		case "":
			if name != "" {
				return name, data
			}
		}
	}
	return "", ""
}

// until reads events until one has a text. A tick has none.
func (e *eventReader) until(t *testing.T, text string) {
	t.Helper()
	for {
		name, data := e.next()
		require.NotEmpty(t, name, "the stream ended before %q", text)
		if strings.Contains(data, text) {
			return
		}
	}
}

// follow opens a stream of the changes at a path. It continues after the event of an ID, unless that is empty.
func (s *service) follow(t *testing.T, path, after string) *eventReader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return readEvents(response.Body)
}
