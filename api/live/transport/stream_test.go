package transport_test

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/live/transport"
)

// TestEvents checks the lines of events, and that each arrives before the next one is sent, over both versions of HTTP.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			received := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				out := transport.Open(w)
				for _, text := range []string{
					string(transport.AppendRetry(nil, 1234*time.Millisecond)),
					string(transport.AppendEnd(append(transport.AppendStart(nil, "changes", "abc"), `{"a":1}`...))),
					string(transport.AppendEnd(append(transport.AppendStart(nil, "tick", ""), `{}`...))),
				} {
					if out.Send([]byte(text)) != nil {
						return
					}
					<-received
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			response, err := server.Client().Get(server.URL)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, name, response.Proto)
			require.Equal(t, transport.MediaType, response.Header.Get("Content-Type"))
			require.Equal(t, "no-store, no-transform", response.Header.Get("Cache-Control"))
			require.Equal(t, "no", response.Header.Get("X-Accel-Buffering"))
			lines := bufio.NewScanner(response.Body)
			for _, want := range []string{
				"retry: 1234\n\n", "event: changes\nid: abc\ndata: {\"a\":1}\n\n", "event: tick\ndata: {}\n\n",
			} {
				for line := range strings.SplitSeq(strings.TrimSuffix(want, "\n"), "\n") {
					require.True(t, lines.Scan())
					require.Equal(t, line, lines.Text())
				}
				received <- struct{}{}
			}
			require.False(t, lines.Scan())
		})
	}
}

// deadlines is a response that notes its write deadlines. A real connection does not show them.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
	err error
}

func (d *deadlines) SetReadDeadline(time.Time) error { return nil }

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func (d *deadlines) Write(b []byte) (int, error) { return len(b), d.err }

func (d *deadlines) Flush() {}

// TestDeadlines checks that each write has a deadline, and that there is none in between: it would end a quiet stream.
func TestDeadlines(t *testing.T) {
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	out := transport.Open(d)
	require.Equal(t, []time.Time{{}}, d.set)
	before := time.Now()
	require.NoError(t, out.Send([]byte("x")))
	require.Len(t, d.set, 3)
	require.False(t, d.set[1].Before(before.Add(transport.WriteTimeout)))
	require.Zero(t, d.set[2])
	transport.Release(d)
	require.False(t, d.set[3].Before(before.Add(transport.WriteTimeout)))
	d.err = errors.New("the client is gone")
	require.ErrorIs(t, out.Send([]byte("x")), d.err)
}
