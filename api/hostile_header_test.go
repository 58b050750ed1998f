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

// TestManyHeadersTakeNoMemory: a refused request keeps none of its headers while the server waits for the rest of its
// body.
func TestManyHeadersTakeNoMemory(t *testing.T) {
	var headers strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&headers, "%x:\r\n", i)
	}
	slowlyOn(t, func(*testing.T) store.Store { return &pausing{} }, func(t *testing.T, dial func() net.Conn) {
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
