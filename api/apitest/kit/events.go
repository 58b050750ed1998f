package kit

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Event is an event that a client received.
type Event struct {
	Name, ID string
	Data     map[string]any
}

// EventReader reads events as a browser does.
type EventReader struct {
	t      *testing.T
	lines  *bufio.Scanner
	Retry  []string // the values of retry so far
	Closed func()
}

// NewEventReader returns a reader of events.
func NewEventReader(t *testing.T, from io.Reader) *EventReader {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	return &EventReader{t: t, lines: lines}
}

// Next returns the next event; false at the end.
func (r *EventReader) Next() (e Event, ok bool) {
	r.t.Helper()
	for r.lines.Scan() {
		field, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch field {
		case "retry":
			r.Retry = append(r.Retry, value)
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			err := json.Unmarshal([]byte(value), &e.Data)
			assert.NoError(r.t, err, value) //nolint:testifylint // it is also read on other goroutines
		case "":
			if e.Name != "" {
				return e, true
			}
		default:
			r.t.Errorf("unknown field %q", field)
		}
	}
	return e, false
}

// Changes returns the next event that is not a tick.
func (r *EventReader) Changes() Event {
	r.t.Helper()
	for {
		e, ok := r.Next()
		require.True(r.t, ok, "the stream has ended")
		if e.Name != "tick" {
			return e
		}
	}
}
