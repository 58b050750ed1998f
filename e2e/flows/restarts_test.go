package flows

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// idlers are users who are idle, each connected to one of three servers.
type idlers struct {
	urls    [3]atomic.Pointer[string]
	clients sync.WaitGroup
	moved   atomic.Int64 // how often one has moved
}

// connectIdle opens a WebSocket of a user who has been idle for some time. Each second one has a new device each time.
func (m *idlers) connectIdle(ctx context.Context, i, at int, since time.Time) (*websocket.Conn, error) {
	user := fmt.Sprintf(`"user":"app%d"`, i)
	if i%2 == 0 {
		user = fmt.Sprintf(`"user":"page%d","device":{"id":"tab"}`, i)
	}
	url := *m.urls[at%len(m.urls)].Load() + "/v1/namespaces/chat/connect"
	socket, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // package websocket closes it
	if err != nil {
		return nil, err
	}
	hello := fmt.Sprintf(`{"hello":{%s,"activity":{"idle":true,"idle_ms":%d}}}`, user, time.Since(since).Milliseconds())
	err = socket.Write(ctx, websocket.MessageText, []byte(hello))
	if err == nil {
		_, err = untilFrameOf(ctx, socket, "welcome")
	}
	return socket, err
}

// stayIdle keeps a user connected as lastseen.js does: when a server asks it to connect elsewhere, it opens another
// connection before it closes the old one.
func (m *idlers) stayIdle(ctx context.Context, i int) {
	since := time.Now().Add(-time.Hour)
	socket, err := m.connectIdle(ctx, i, i, since)
	for at := i + 1; err == nil; at++ {
		if _, err = untilFrameOf(ctx, socket, "bye"); err != nil {
			break
		}
		old := socket
		if socket, err = m.connectIdle(ctx, i, at, since); err == nil {
			m.moved.Add(1)
		}
		_ = old.Close(websocket.StatusNormalClosure, "")
	}
}

// untilFrameOf reads frames until one has a name, and returns its content.
func untilFrameOf(ctx context.Context, socket *websocket.Conn, name string) (json.RawMessage, error) {
	for {
		_, text, err := socket.Read(ctx)
		if err != nil {
			return nil, err
		}
		var frame map[string]json.RawMessage
		if err := json.Unmarshal(text, &frame); err != nil || frame[name] != nil {
			return frame[name], err
		}
	}
}

// idleSince returns since when green users have been idle, by user.
func idleSince(t *testing.T, s *testserver.Server) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, user := range s.Get(t, "/v1/namespaces/chat/users?status=green&limit=1000")["users"].([]any) {
		if presence := user.(map[string]any); presence["idle_since"] != nil {
			found[presence["user"].(string)] = presence["idle_since"]
		}
	}
	return found
}

// TestIdleUsersStayIdleInRestarts: three servers on a Redis are restarted one after the other. Their users, who are all
// idle, move to the next one and stay as they are, also those with another device each time: a watcher at a fourth one
// gets no change about them.
func TestIdleUsersStayIdleInRestarts(t *testing.T) {
	t.Parallel()
	const users = 100
	args := append(onRedis(t), "--connect-drain", "5s")
	watched, m := testserver.Start(t, args...), &idlers{}
	var servers [3]*testserver.Server
	start := func(i int) {
		servers[i] = testserver.Start(t, args...)
		m.urls[i].Store(&servers[i].URL)
	}
	for i := range servers {
		start(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer m.clients.Wait()
	defer cancel()
	for i := range users {
		m.clients.Go(func() { m.stayIdle(ctx, i) })
	}
	require.Eventually(t, func() bool { return len(idleSince(t, watched)) == users }, flowWait, 100*time.Millisecond)
	before := idleSince(t, watched)

	watcher := connectWith(t, watched, `{"hello":{"watch":{"everyone":true}}}`)
	require.Contains(t, receive(t, watcher), `"welcome"`)
	for i := range servers {
		require.Zero(t, servers[i].Terminate(t))
		start(i)
		require.Equal(t, before, idleSince(t, watched))
	}
	require.GreaterOrEqual(t, m.moved.Load(), int64(users), "each user was at one of the servers")
	watched.Post(t, chatUsers+"zoe/ping", "")
	changed := map[string]bool{}
	for !changed["zoe"] {
		var frame struct{ Users []struct{ User string } }
		content, err := untilFrameOf(t.Context(), watcher, "changes")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &frame))
		for _, presence := range frame.Users {
			changed[presence.User] = true
		}
	}
	require.Equal(t, []string{"zoe"}, slices.Collect(maps.Keys(changed)))
}
