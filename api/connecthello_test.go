package api

import (
	"context"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// heldStore is a store that records no devices until a test lets it.
type heldStore struct {
	store.Store
	begun, proceed chan struct{}
}

func newHeldStore(t *testing.T) *heldStore {
	t.Helper()
	return &heldStore{fileStore(t), make(chan struct{}, 1), make(chan struct{})}
}

func (s *heldStore) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	s.begun <- struct{}{}
	select {
	case <-s.proceed:
		return s.Store.RecordDevices(ctx, namespace, window, batch)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestConnectSlowHello: a client that said hello in time is not late because the server is, within limits.
func TestConnectSlowHello(t *testing.T) {
	s := newHeldStore(t)
	w := newSocketServerOn(t, s)
	hello := func() *testSocket {
		c := w.dialSocket("chat")
		c.send(`{"hello":{"user":"alice"}}`)
		<-s.begun
		return c
	}
	late := hello()
	w.config.Shared.sockets.all()[0].wake()
	late.fails(codeOverloaded)
	slow := hello()
	time.Sleep(helloTimeout + 100*time.Millisecond)
	close(s.proceed)
	slow.want(frameWelcome)
}

// TestConnectKeyRemovedDuringHello: a reload is not missed while the frame hello is handled.
func TestConnectKeyRemovedDuringHello(t *testing.T) {
	authenticator, headers := callers(t)
	other, _ := callers(t)
	s := newHeldStore(t)
	w := newSocketServerOn(t, s, func(c *Config) { c.Auth = authenticator })
	c := w.dialSocket("chat", "Authorization: "+headers["all"])
	c.send(`{"hello":{"user":"alice"}}`)
	<-s.begun
	w.reload(func(c *Config) { c.Auth = other })
	time.Sleep(100 * time.Millisecond) // for the check that follows a reload
	close(s.proceed)
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(maxSocketPing/2))) // before the next check
	for {
		if _, _, err := c.conn.ReadMessage(); err != nil {
			require.True(t, websocket.IsCloseError(err, 4403), "%v", err)
			return
		}
	}
}

// TestConnectCountsWatchesOfCaller: users are counted to the same caller at the end as at the start, although a reload can
// change who the caller is.
func TestConnectCountsWatchesOfCaller(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t)
	s, _ := w.hello(`{"watch":{"users":["bob"]}}`, "Authorization: "+headers["alice"])
	w.reload(func(c *Config) { c.Auth = authenticator })
	n := w.config.Shared.sockets.all()[0]
	require.Eventually(t, func() bool { return n.currentCaller() != nil }, eventually, tick)
	s.asks(`{"watch":{"add":["carol"]}}`, frameChanges)
	require.NoError(t, s.conn.Close())
	require.Eventually(t, func() bool { return w.config.Shared.WebSockets() == 0 }, eventually, tick)
	select {
	case <-n.following.done:
	case <-time.After(eventually):
	}
	require.Empty(t, w.config.Shared.watched.counts)
}
