package scenarios

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// chatUsers is the path of the users that the scenarios are about.
const chatUsers = "/v1/namespaces/chat/users/"

// scenarioWait is how long anything in a scenario may take. It does not measure; it ends a test that hangs.
const scenarioWait = time.Minute

// chatApp is an app as the scenarios describe it: it keeps its user online by a WebSocket, follows friends, and
// remembers what it showed.
type chatApp struct {
	socket  *websocket.Conn
	network net.Conn     // below the socket
	silence atomic.Int64 // how many pings of the server it does not answer any more
	pings   atomic.Int64 // that it got
	ended   chan struct{}

	mu     sync.Mutex
	shown  map[string][]string // what it showed of each user, in order
	noted  map[string]int      // which of that the test has waited for
	cursor string              // of the last frame that had one
	frames map[string][]string // the frames self, typing, call and bye, by name
}

// appOptions are how an app connects.
type appOptions struct {
	user, kind string   // no user: it follows only
	friends    []string // whom it follows
	cursor     string   // after which it continues
}

func (o appOptions) hello() ([]byte, error) {
	hello := map[string]any{}
	if o.user != "" {
		hello["user"], hello["device"] = o.user, map[string]any{"kind": cmp.Or(o.kind, "mobile")}
	}
	if o.friends != nil {
		hello["watch"] = map[string]any{"users": o.friends}
	}
	if o.cursor != "" {
		hello["cursor"] = o.cursor
	}
	return json.Marshal(map[string]any{"hello": hello})
}

// openApp opens an app, until the test ends.
func openApp(t *testing.T, s *testserver.Server, o appOptions) *chatApp {
	t.Helper()
	a, err := dialApp(t.Context(), s.URL, o)
	require.NoError(t, err)
	t.Cleanup(func() { a.kill(t) })
	return a
}

// dialApp opens an app whose user is online when it returns.
func dialApp(ctx context.Context, url string, o appOptions) (*chatApp, error) {
	a := &chatApp{
		ended: make(chan struct{}), noted: map[string]int{},
		shown: map[string][]string{}, frames: map[string][]string{},
	}
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		a.network, err = new(net.Dialer).DialContext(ctx, network, address)
		return a.network, err
	}
	ctx, cancel := context.WithTimeout(ctx, scenarioWait)
	defer cancel()
	//nolint:bodyclose // package websocket closes it
	socket, _, err := websocket.Dial(ctx, url+"/v1/namespaces/chat/connect", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}},
		OnPingReceived: func(context.Context, []byte) bool {
			a.pings.Add(1)
			return a.silence.Add(-1) < 0
		},
	})
	if err != nil {
		return nil, err
	}
	a.socket = socket
	hello, err := o.hello()
	if err == nil {
		err = socket.Write(ctx, websocket.MessageText, hello)
	}
	if err == nil {
		err = a.read(ctx)
	}
	if err != nil {
		_ = socket.CloseNow() // the error says why
		return nil, err
	}
	go a.readAll()
	return a, nil
}

func (a *chatApp) readAll() {
	defer close(a.ended)
	for a.read(context.Background()) == nil {
		continue
	}
}

func (a *chatApp) read(ctx context.Context) error {
	_, text, err := a.socket.Read(ctx)
	if err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, content := range all {
		switch name {
		case "welcome", "changes", "reset", "tick":
			err = a.show(content)
		case "self", "typing", "call", "bye":
			a.frames[name] = append(a.frames[name], string(content))
		case "problem":
			err = fmt.Errorf("a problem: %s", content)
		}
	}
	return err
}

func (a *chatApp) show(content []byte) error {
	var frame struct {
		Users  []map[string]any
		Cursor string
	}
	if err := json.Unmarshal(content, &frame); err != nil {
		return err
	}
	a.cursor = cmp.Or(frame.Cursor, a.cursor)
	for _, presence := range frame.Users {
		user := presence["user"].(string)
		if now := testserver.InWords(presence); len(a.shown[user]) == 0 || a.shown[user][len(a.shown[user])-1] != now {
			a.shown[user] = append(a.shown[user], now)
		}
	}
	return nil
}

// all returns what the app has shown of a user, in order.
func (a *chatApp) all(user string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.shown[user])
}

// until waits until the app shows something of a user, at or after what the test waited for before.
func (a *chatApp) until(t *testing.T, user, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		found := slices.Index(a.shown[user][a.noted[user]:], want)
		a.noted[user] += max(found, 0)
		return found >= 0
	}, scenarioWait, 10*time.Millisecond, "the app should show %s as %q", user, want)
}

// untilFrame waits until the last frame with a name is some JSON, or is there at all if want is "".
func (a *chatApp) untilFrame(t *testing.T, name, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		frames := a.frames[name]
		return len(frames) > 0 && (want == "" || frames[len(frames)-1] == want)
	}, scenarioWait, 10*time.Millisecond, "the app should get the frame %s %s", name, want)
}

// untilDevices waits until alice has some devices that are live, and some that are gone.
func untilDevices(t *testing.T, s *testserver.Server, live, gone int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the devices of alice now: %v", s.Get(t, alice+"/devices"))
		}
	}()
	require.Eventually(t, func() bool {
		l, g := 0, 0
		for _, device := range s.Get(t, alice+"/devices")["devices"].([]any) {
			if device.(map[string]any)["live"] == true {
				l++
			}
			if device.(map[string]any)["gone"] == true {
				g++
			}
		}
		return l == live && g == gone
	}, scenarioWait, 10*time.Millisecond, "alice should have %d devices, and %d that are gone", live, gone)
}

func (a *chatApp) send(t *testing.T, frame string) {
	t.Helper()
	require.NoError(t, a.socket.Write(t.Context(), websocket.MessageText, []byte(frame)))
}

// position returns the cursor after which another app continues.
func (a *chatApp) position() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cursor
}

// kill ends the connection as the system of a killed process does, unless it has ended.
func (a *chatApp) kill(t *testing.T) {
	t.Helper()
	_ = a.socket.CloseNow() // a second time, too
	a.untilEnded(t)
}

func (a *chatApp) untilEnded(t *testing.T) {
	t.Helper()
	select {
	case <-a.ended:
	case <-time.After(scenarioWait):
		t.Fatal("the connection has not ended")
	}
}

// look returns what everybody sees of a user now, or with a query.
func look(t *testing.T, s *testserver.Server, user, query string) string {
	t.Helper()
	return testserver.InWords(s.Get(t, chatUsers+user+query))
}

// eachSite runs a scenario on one server with a file, and on two servers with a Redis. The users of the scenario are
// connected to both servers.
func eachSite(t *testing.T, scenario func(t *testing.T, one, two *testserver.Server), args ...string) {
	t.Helper()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		s := testserver.Start(t, args...)
		scenario(t, s, s)
	})
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		all := append(onRedis(t), args...)
		scenario(t, testserver.Start(t, all...), testserver.Start(t, all...))
	})
}

// onRedis returns the arguments of servers on a Redis, also on a busy machine. Its namespace is not new: in a new one,
// the first user who becomes invisible waits until all servers know.
func onRedis(t *testing.T) []string {
	t.Helper()
	url := redistest.Start(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	anHourAgo := time.Now().Add(-time.Hour).UnixMilli()
	require.NoError(t, client.HSet(t.Context(), "presence::meta", "chat:hidden", anHourAgo).Err())
	return []string{"--store", url, "--redis-timeout", "30s", "--redis-dial-timeout", "30s"}
}
