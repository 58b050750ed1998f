package api

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

func TestMediaTypesReadAsJSON(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for i, media := range []string{
		"", "application/json", "application/json; charset=UTF-8", "text/plain", "text/plain;charset=us-ascii",
		"application/x-www-form-urlencoded",
	} {
		response := w.post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":100123}`, "Content-Type: "+media)
		require.Equal(t, "1970-01-02T03:48:43.000Z", response["last_seen"], media)
	}
}

// TestLargeSingleUserBodies checks the limit of bodies about one user. The body of a leave is read before its caller
// is authenticated.
func TestLargeSingleUserBodies(t *testing.T) {
	w := newLimitedServer(t)
	for _, path := range []string{"/chat/users/alice/ping", "/chat/users/alice/leave"} {
		most := `{"at":1` + strings.Repeat(" ", maxOneBody-len(`{"at":1}`)) + "}"
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, path, most).status, path)
		w.fails(codeBodyTooLarge, http.MethodPost, path, most+" ")
	}
}

// TestCompressedBodiesAreRefused checks that no body is ever decompressed.
func TestCompressedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	bomb := func(packer io.WriteCloser, packed *bytes.Buffer) string {
		_, err := io.Copy(packer, io.LimitReader(endlessSpaces{}, 8*maxBody))
		require.NoError(t, err)
		require.NoError(t, packer.Close())
		require.Less(t, packed.Len(), maxBody, "the bomb itself is small")
		return packed.String()
	}
	var gzipped, deflated bytes.Buffer
	deflater, err := flate.NewWriter(&deflated, flate.BestSpeed)
	require.NoError(t, err)
	for encoding, body := range map[string]string{
		"gzip": bomb(gzip.NewWriter(&gzipped), &gzipped), "deflate": bomb(deflater, &deflated),
		"GZIP": "{}", "x-gzip": "{}", "gzip, gzip": "{}", "identity, gzip": "{}", "br": "{}", "zstd": "{}",
		strings.Repeat("gzip,", 10_000): "{}",
	} {
		for _, path := range []string{
			"/chat/pings", "/chat/leaves", "/chat/lookup", "/chat/users/alice/ping",
			"/chat/users/alice/leave",
		} {
			if strings.Contains(path, "/users/") {
				body = body[:min(len(body), maxOneBody)]
			}
			problem := w.fails(codeUnsupportedMediaType, http.MethodPost, path, body, "Content-Encoding: "+encoding)
			require.Less(t, len(problem["detail"].(string)), 200)
		}
		w.fails(codeUnsupportedMediaType, http.MethodPost, "/chat/pings", body, "Content-Encoding: "+encoding, ndjson)
	}
	unlabelled := gzipped.String()
	w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", unlabelled)
	w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", unlabelled[:4000]+"\n", ndjson)
	require.Zero(t, w.total("chat"))
}

// endlessSpaces is an endless reader of spaces.
type endlessSpaces struct{}

func (endlessSpaces) Read(p []byte) (int, error) {
	return copy(p, blank[:]), nil
}

// blank is the source of endlessSpaces. Copying it is fast, also under the race detector.
var blank = [32 << 10]byte(bytes.Repeat([]byte{' '}, 32<<10))

// TestAnnouncedBodies checks that a Content-Length without a body allocates almost nothing.
func TestAnnouncedBodies(t *testing.T) {
	const bodies = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bodies {
		r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		r.ContentLength = maxBody
		requireProblem(t,
			(&server{Shared: &Shared{bodies: newBodyMemory(DefaultBodyMemory)}}).body(echo.New().NewContext(r,
				httptest.NewRecorder()), maxBody).read())
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(bodies*maxBody/10))
}

// TestStalledBodyTimesOut checks that a body that stops arriving fails earlier than the request's time limit.
func TestStalledBodyTimesOut(t *testing.T) {
	for _, sent := range []int{1 << 10, 100 << 10, maxBody - 1} {
		withFakeClockOn(t, func(*testing.T) store.Store { return &slowStore{} },
			func(t *testing.T, dial func() net.Conn) {
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

// TestSlowBodies checks that a body below the minimum rate fails and one above it does not. The minimum rate does
// not apply after the body has arrived.
func TestSlowBodies(t *testing.T) {
	for perSecond, want := range map[int]int{
		minBodyRate / 2:     http.StatusBadRequest,
		minBodyRate * 5 / 4: http.StatusOK,
	} {
		s := &slowStore{pause: 2 * rateWindow}
		withFakeClockOn(t, func(*testing.T) store.Store { return s }, func(t *testing.T, dial func() net.Conn) {
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

// TestLargeBodiesGetAResponse checks that a client that reads only after it has sent everything, as most do, gets
// the error.
func TestLargeBodiesGetAResponse(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
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
		r := readResponse(t, conn)
		require.Equal(t, string(c.want), r.json(t)["code"], what)
	}
}

// TestEndlessBodiesAreCutOff checks that the server does not read a refused body forever.
func TestEndlessBodiesAreCutOff(t *testing.T) {
	t.Parallel()
	conn := newLimitedServer(t).dial()
	_, err := fmt.Fprintf(conn, "POST /v1/nothing HTTP/1.1\r\nHost: lastseen\r\nContent-Length: %d\r\n\r\n", 1<<40)
	require.NoError(t, err)
	for range 1 << 10 {
		if _, err = conn.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
	t.Fatal("1 GiB was taken")
}
