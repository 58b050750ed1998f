package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial connects to the server, for requests that Go's client would write in another way.
func (w *world) dial() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// readReply reads an answer from a connection, the final one.
func readReply(t *testing.T, conn net.Conn) reply {
	t.Helper()
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	if response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(from, nil)
		require.NoError(t, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(content)}
}

// TestPathsAsTheyWereSent: in a path with a byte that ought to be encoded and is not, %2F is still no
// separator.
func TestPathsAsTheyWereSent(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for sent, user := range map[string]string{
		"ü%2Fping": "ü/ping", `a"%2Fb`: `a"/b`, "{x}%2F%7Cy": "{x}/|y", `%2541"`: `%41"`, "%2e%2F^": "./^",
	} {
		conn := w.dial()
		_, err := fmt.Fprintf(conn,
			"POST /v1/namespaces/chat/users/%s/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\n\r\n", sent)
		require.NoError(t, err)
		r := readReply(t, conn)
		require.Equal(t, http.StatusOK, r.status, "%s: %s", sent, r.body)
		require.Equal(t, user, r.json(t)["user"], sent)
	}
}

// TestLargeBodiesAreAnswered: a client that reads nothing before it has sent everything, as most do, gets
// to see what was wrong.
func TestLargeBodiesAreAnswered(t *testing.T) {
	w := newLimitedWorld(t)
	const size = 32 << 20 // more than the buffers of a connection hold
	for _, c := range []struct {
		path, headers, start string
		want                 code
	}{
		{"/v1/namespaces/chat/pings", "", "", codeBodyTooLarge},
		{"/v1/namespaces/chat/pings", ndjson + "\r\n", "{}\n", codeInvalidUser},
		{"/v1/namespaces/chat/pings", ndjson + "\r\nExpect: 100-continue\r\n", "{}\n", codeInvalidUser},
		{"/v1/namespaces/.hidden/pings", "", "", codeInvalidNamespace},
		{"/v1/nothing", "", "", codeNotFound},
	} {
		conn, what := w.dial(), c.path+" "+c.headers
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: lastseen\r\nContent-Length: %d\r\n%s\r\n%s", c.path,
			size, c.headers, c.start)
		require.NoError(t, err, what)
		_, err = conn.Write(bytes.Repeat([]byte{' '}, size-len(c.start)))
		require.NoError(t, err, what)
		r := readReply(t, conn)
		require.Equal(t, string(c.want), r.json(t)["code"], what)
	}
}

// TestEndlessBodiesAreNot: nobody is listened to for ever.
func TestEndlessBodiesAreNot(t *testing.T) {
	conn := newLimitedWorld(t).dial()
	_, err := fmt.Fprintf(conn, "POST /v1/nothing HTTP/1.1\r\nHost: lastseen\r\nContent-Length: %d\r\n\r\n", 1<<40)
	require.NoError(t, err)
	for range 1 << 10 {
		if _, err = conn.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
	t.Fatal("1 GiB was taken")
}
