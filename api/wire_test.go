package api

import (
	"bufio"
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

// readReply reads an answer from a connection.
func readReply(t *testing.T, from net.Conn) reply {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(from), nil)
	require.NoError(t, err)
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
		_, err := fmt.Fprintf(conn, "POST /v1/namespaces/chat/users/%s/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\n\r\n", sent)
		require.NoError(t, err)
		r := readReply(t, conn)
		require.Equal(t, http.StatusOK, r.status, "%s: %s", sent, r.body)
		require.Equal(t, user, r.json(t)["user"], sent)
	}
}
