package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

func TestRequestID(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	id := func(sent ...string) string { return w.send(http.MethodGet, "", "", sent...).header.Get("X-Request-Id") }
	require.Equal(t, "abc-123", id("X-Request-Id: abc-123"))
	first, second := id(), id()
	require.NotEqual(t, first, second)
	for _, strange := range []string{"a b", strings.Repeat("x", 129), "ü"} {
		require.NotEqual(t, strange, id("X-Request-Id: "+strange))
	}
}

// TestHeaderInjection checks that no input becomes a header of the response, except for a valid request ID.
func TestHeaderInjection(t *testing.T) {
	w := newLimitedServer(t)
	for _, id := range []string{
		"a\r\n Set-Cookie: x", "a\r\n\tb", "a\tb", "a b", "\u00e9", "\xff\xfe", "a\u2028b", strings.Repeat("x", 129),
		strings.Repeat("x", 80<<10), "",
	} {
		responses := w.exchange("GET /v1/nothing HTTP/1.1\r\nHost: lastseen\r\nX-Request-Id: " + id +
			"\r\nConnection: close\r\n\r\n")
		require.Len(t, responses, 1, "%.40q", id)
		require.Regexp(t, `^[0-9a-z]{1,13}$`, responses[0].header.Get("X-Request-Id"),
			"one of our own instead of %.40q",
			id)
		require.Empty(t, responses[0].header.Get("Set-Cookie"))
		require.Less(t, len(responses[0].body), 1<<10)
	}
	first := w.exchange("GET /healthz HTTP/1.1\r\nHost: a\r\nX-Request-Id: one\r\nX-Request-Id: two\r\nConnection: close\r\n\r\n")[0]
	require.Equal(t, []string{"one"}, first.header.Values("X-Request-Id"))
	for _, path := range []string{
		"/docs", "/docs?next=//evil", "//evil/docs",
		"/v1/namespaces/%0d%0aLocation:%20evil",
	} {
		for _, a := range w.exchange("GET " + path +
			" HTTP/1.1\r\nHost: evil\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: //evil\r\nConnection: close\r\n\r\n") {
			require.NotContains(t, fmt.Sprint(a.header), "evil", path)
		}
	}
}

// TestManyHeadersTakeNoMemory checks that a refused request releases its headers while the server waits for the rest
// of its body.
func TestManyHeadersTakeNoMemory(t *testing.T) {
	var headers strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&headers, "%x:\r\n", i)
	}
	withFakeClockOn(t, func(*testing.T) store.Store { return &slowStore{} }, func(t *testing.T, dial func() net.Conn) {
		const requests = 20
		var conns []net.Conn
		before := heap()
		for range requests {
			conn := dial()
			conns = append(conns, conn)
			_, err := fmt.Fprintf(conn,
				"POST /v1/namespaces/chat/lookup HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n", maxBody, headers.String())
			require.NoError(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
			require.NoError(t, response.Body.Close())
		}
		synctest.Wait()
		after := heap()
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		time.Sleep(time.Minute) // until the server is done with the connections
		require.Less(t, after, before+requests*(200<<10))
	})
}

func TestPanic(t *testing.T) {
	w := newTestServer(t, &errStore{Store: fileStore(t), panic: true})
	problem := w.fails(codeInternal, http.MethodPost, "/chat/users/alice/ping", "")
	require.NotContains(t, problem["detail"], "cause")
	require.Contains(t, w.log.String(), "the cause")
	require.Contains(t, w.log.String(), "teststore_test.go", "the log has the stack")
}
