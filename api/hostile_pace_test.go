package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// pausing is a store that takes a while to record pings, and notes whether their callers were given up on meanwhile.
type pausing struct {
	store.Store
	pause    time.Duration
	canceled bool
}

func (*pausing) Now(context.Context) (lastseen.Instant, error) { return noon, nil }

func (p *pausing) Ping(ctx context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	time.Sleep(p.pause)
	p.canceled = ctx.Err() != nil
	return make([]lastseen.State, len(batch)), nil
}

// start sends the head of a bulk request with a body of so many bytes, and the beginning of that.
func start(t *testing.T, conn net.Conn, length int, begin string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
		length, begin)
	require.NoError(t, err)
}

// TestBodiesThatStall: a body that does not go on is not waited for as long as a request may take.
func TestBodiesThatStall(t *testing.T) {
	for _, sent := range []int{1 << 10, 100 << 10, maxBody - 1} {
		slowlyOn(t, func(*testing.T) store.Store { return &pausing{} }, func(t *testing.T, dial func() net.Conn) {
			conn, begin := dial(), time.Now()
			start(t, conn, maxBody, strings.Repeat(" ", sent))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, http.StatusBadRequest, response.StatusCode)
			require.GreaterOrEqual(t, time.Since(begin), rateWindow, "%d bytes", sent)
			require.LessOrEqual(t, time.Since(begin), rateWindow+drainTimeout, "%d bytes", sent)
			require.NoError(t, conn.Close())
			time.Sleep(time.Minute) // until the server is done with the connection
		})
	}
}

// TestSlowBodies: one that trickles fails, one that goes on at the least rate does not; and one that has arrived
// has not to arrive any more.
func TestSlowBodies(t *testing.T) {
	for perSecond, want := range map[int]int{
		minBodyRate / 2:     http.StatusBadRequest,
		minBodyRate * 5 / 4: http.StatusOK,
	} {
		s := &pausing{pause: 2 * rateWindow}
		slowlyOn(t, func(*testing.T) store.Store { return s }, func(t *testing.T, dial func() net.Conn) {
			conn := dial()
			body := `{"pings":[{"user":"alice"}]}`
			start(t, conn, 25*perSecond, "")
			status := make(chan int, 1)
			go func() {
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					status <- 0
					return
				}
				defer response.Body.Close()
				_, _ = io.Copy(io.Discard, response.Body)
				status <- response.StatusCode
			}()
			for second := range 25 {
				piece := strings.Repeat(" ", perSecond)
				if second == 24 {
					piece = piece[len(body):] + body
				}
				if _, err := io.WriteString(conn, piece); err != nil {
					break
				}
				time.Sleep(time.Second)
			}
			require.Equal(t, want, <-status, "%d bytes a second", perSecond)
			require.False(t, s.canceled)
			require.NoError(t, conn.Close())
			time.Sleep(time.Minute) // until the server is done with the connection
		})
	}
}
