package guides

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// transcriptLine is one line of a transcript in a guide: a frame that is sent or received.
type transcriptLine struct {
	sent  bool
	frame string
}

// transcript returns the frames in a text, which begin with "> " or "< ".
func transcript(text string) (lines []transcriptLine) {
	for _, match := range regexp.MustCompile(`(?m)^([<>]) (\{.*\})$`).FindAllStringSubmatch(text, -1) {
		lines = append(lines, transcriptLine{match[1] == ">", match[2]})
	}
	return lines
}

func (l transcriptLine) kind(t *testing.T) string {
	t.Helper()
	var frame map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(l.frame), &frame), l.frame)
	delete(frame, "id")
	require.Len(t, frame, 1, l.frame)
	for name := range frame {
		return name
	}
	return ""
}

// maskedFrame hides what differs from run to run.
func maskedFrame(text string) string {
	for pattern, mask := range map[string]string{
		`"(connection|cursor|request_id)":"[^"]+"`: `"$1":"RANDOM"`,
		`"reconnect_after_ms":\d+`:                 `"reconnect_after_ms":N`,
		`"expires_in_ms":\d+`:                      `"expires_in_ms":N`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, mask)
	}
	return masked(text)
}

// frames is a WebSocket whose frames a test compares with a guide.
type frames struct {
	ctx    context.Context
	socket *websocket.Conn
}

// dialFrames opens a WebSocket, which lasts until the test ends.
func dialFrames(t *testing.T, s *testserver.Server) *frames {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	url := strings.Replace(s.URL, "http", "ws", 1) + "/v1/namespaces/chat/connect"
	socket, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // not needed
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.CloseNow() })
	return &frames{ctx, socket}
}

// replay sends a line, or expects one. Ticks and changes that come in between are skipped.
func (f *frames) replay(t *testing.T, line transcriptLine) {
	t.Helper()
	if line.sent {
		require.NoError(t, f.socket.Write(f.ctx, websocket.MessageText, []byte(line.frame)))
		return
	}
	for {
		_, data, err := f.socket.Read(f.ctx)
		require.NoError(t, err, line.frame)
		got := transcriptLine{false, string(data)}
		if kind := got.kind(t); kind != "tick" && kind != "changes" || kind == line.kind(t) {
			require.JSONEq(t, maskedFrame(line.frame), maskedFrame(got.frame))
			return
		}
	}
}

// TestTourConnects replays the tour's transcript of a WebSocket.
func TestTourConnects(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(tour)
	require.NoError(t, err)
	lines := transcript(string(guide))
	require.Len(t, lines, 5, "hello, welcome, changes, leave, ok")
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		f := dialFrames(t, s)
		for _, line := range lines {
			if !line.sent && line.kind(t) == "changes" {
				s.Post(t, strings.ReplaceAll(alice, "alice", "dave")+"/ping", "")
			}
			f.replay(t, line)
		}
	})
}

// TestConnectionsGuide replays the frames of docs/connections.md and docs/frames.md. It leaves out those that come
// after minutes, on a stop, with a token, or because of what others do, and ends with leave.
func TestConnectionsGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/connections.md")
	require.NoError(t, err)
	reference, err := os.ReadFile("../../docs/frames.md")
	require.NoError(t, err)
	var lines, leave []transcriptLine
	for _, line := range transcript(string(guide) + string(reference)) {
		switch kind := line.kind(t); {
		case kind == "bye", kind == "tick", kind == "token", kind == "self", kind == "typing" && !line.sent,
			strings.Contains(line.frame, "expires"),
			strings.Contains(line.frame, `"yellow"`) && kind == "changes":
		case kind == "leave", len(leave) == 1:
			leave = append(leave, line)
		default:
			lines = append(lines, line)
		}
	}
	require.Len(t, leave, 2)
	require.Greater(t, len(lines), 12)
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		f := dialFrames(t, s)
		for _, line := range append(slices.Clone(lines), leave...) {
			if line.kind(t) == "changes" && strings.Contains(line.frame, `"user":"bob"`) {
				s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
			}
			f.replay(t, line)
		}
		_, _, err := f.socket.Read(f.ctx)
		require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	})
}
