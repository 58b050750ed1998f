package kit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
)

// Socket is a WebSocket as a client has it.
type Socket struct {
	T    *testing.T
	Conn *websocket.Conn
}

// Quiet checks that nothing but ticks came before the response to a frame.
func (s *Socket) Quiet() {
	s.T.Helper()
	s.Asks(`{"activity":{"idle":false}}`, "ok")
}

// Send sends a frame.
func (s *Socket) Send(text string) {
	s.T.Helper()
	require.NoError(s.T, s.Conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// Next returns the next frame: its name, its content and its ID.
func (s *Socket) Next() (name string, content map[string]any, id any) {
	s.T.Helper()
	return s.NextBy(time.Now().Add(Eventually))
}

// NextBy is [Socket.next] with a deadline. What skips frames passes the same deadline again each time: ticks never end.
func (s *Socket) NextBy(deadline time.Time) (name string, content map[string]any, id any) {
	s.T.Helper()
	require.NoError(s.T, s.Conn.SetReadDeadline(deadline))
	kind, text, err := s.Conn.ReadMessage()
	require.NoError(s.T, err)
	require.Equal(s.T, websocket.TextMessage, kind)
	require.LessOrEqual(s.T, len(text), MaxSent)
	var frame map[string]any
	require.NoError(s.T, json.Unmarshal(text, &frame), "%s", text)
	id = frame["id"]
	delete(frame, "id")
	require.Len(s.T, frame, 1, "%s", text)
	for name, value := range frame {
		CheckFrame(s.T, "server", text)
		return name, value.(map[string]any), id
	}
	return "", nil, nil
}

// Want returns the content of the next frame that is not a tick, which must have a name.
func (s *Socket) Want(name string) map[string]any {
	s.T.Helper()
	content, _ := s.WantID(name)
	return content
}

// WantID is [Want] with the ID of the frame.
func (s *Socket) WantID(name string) (content map[string]any, id any) {
	s.T.Helper()
	deadline := time.Now().Add(Eventually)
	for {
		got, content, id := s.NextBy(deadline)
		if got == "tick" && name != "tick" {
			continue
		}
		require.Equal(s.T, name, got, "%v", content)
		return content, id
	}
}

// Asks sends a frame and returns the response to it, which must have a name and the same ID.
func (s *Socket) Asks(frame, name string) map[string]any {
	s.T.Helper()
	frame = strings.TrimSuffix(frame, "}") + `,"id":"q1"}`
	if name != "problem" {
		CheckFrame(s.T, "client", []byte(frame))
	}
	s.Send(frame)
	content, id := s.WantID(name)
	require.Equal(s.T, "q1", id)
	return content
}

// AsksDespite is Asks, but other frames that have a name may come before the response.
func (s *Socket) AsksDespite(frame, name, other string) map[string]any {
	s.T.Helper()
	s.Send(strings.TrimSuffix(frame, "}") + `,"id":"q1"}`)
	deadline := time.Now().Add(Eventually)
	for {
		got, content, id := s.NextBy(deadline)
		if got == other && id == nil || got == "tick" {
			continue
		}
		require.Equal(s.T, name, got, "%v", content)
		require.Equal(s.T, "q1", id)
		return content
	}
}

// Refuses sends a frame that must fail with a code, and returns the detail.
func (s *Socket) Refuses(want problem.Code, frame string) string {
	s.T.Helper()
	return s.problem(want, s.Asks(frame, "problem"))
}

func (s *Socket) problem(want problem.Code, p map[string]any) string {
	s.T.Helper()
	require.Equal(s.T, string(want), p["code"], "%v", p)
	require.Equal(s.T, "/docs/errors#"+string(want), p["type"])
	require.EqualValues(s.T, want.Type().Status, p["status"])
	require.NotEmpty(s.T, p["request_id"])
	return p["detail"].(string)
}

// Fails waits for a problem with a code and the close frame that belongs to it, and returns the detail.
func (s *Socket) Fails(want problem.Code) string {
	s.T.Helper()
	detail := s.problem(want, s.Want("problem"))
	s.Closed(want.CloseCode(), string(want))
	return detail
}

// Closed waits for a close frame. Frames before it are discarded.
func (s *Socket) Closed(code int, reason string) {
	s.T.Helper()
	require.NoError(s.T, s.Conn.SetReadDeadline(time.Now().Add(Eventually)))
	for {
		_, _, err := s.Conn.ReadMessage()
		if err == nil {
			continue
		}
		closed, ok := errors.AsType[*websocket.CloseError](err)
		require.True(s.T, ok, "%v", err)
		require.Equal(s.T, code, closed.Code, closed.Text)
		require.Equal(s.T, reason, closed.Text)
		return
	}
}
