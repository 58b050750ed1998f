package servertests

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
)

func TestMediaTypesReadAsJSON(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for i, media := range []string{
		"", "application/json", "application/json; charset=UTF-8", "text/plain", "text/plain;charset=us-ascii",
		"application/x-www-form-urlencoded",
	} {
		response := w.Post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":100123}`, "Content-Type: "+media)
		require.Equal(t, "1970-01-02T03:48:43.000Z", response["last_seen"], media)
	}
}

// TestLargeSingleUserBodies checks the limit of bodies about one user. The body of a leave is read before its caller
// is authenticated.
func TestLargeSingleUserBodies(t *testing.T) {
	w := apitest.NewLimitedServer(t)
	for _, path := range []string{"/chat/users/alice/ping", "/chat/users/alice/leave"} {
		most := `{"at":1` + strings.Repeat(" ", kit.MaxOneBody-len(`{"at":1}`)) + "}"
		w.Send("POST", path, most).Is(t, http.StatusOK, path)
		w.Fails(problem.BodyTooLarge, "POST", path, most+" ")
	}
}

// TestCompressedBodiesAreRefused checks that no body is ever decompressed.
func TestCompressedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
	bomb := func(packer io.WriteCloser, packed *bytes.Buffer) string {
		_, err := io.Copy(packer, io.LimitReader(endlessSpaces{}, 8*kit.MaxBody))
		require.NoError(t, err)
		require.NoError(t, packer.Close())
		require.Less(t, packed.Len(), kit.MaxBody, "the bomb itself is small")
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
			"/chat/pings", "/chat/leaves", "/chat/lookup", "/chat/users/alice/ping", "/chat/users/alice/leave",
		} {
			if strings.Contains(path, "/users/") {
				body = body[:min(len(body), kit.MaxOneBody)]
			}
			refusal := w.Fails(problem.UnsupportedMediaType, "POST", path, body, "Content-Encoding: "+encoding)
			require.Less(t, len(refusal["detail"].(string)), 200)
		}
		w.Fails(problem.UnsupportedMediaType, "POST", "/chat/pings", body, "Content-Encoding: "+encoding, kit.NDJSON)
	}
	unlabelled := gzipped.String()
	w.Fails(problem.InvalidJSON, "POST", "/chat/pings", unlabelled)
	w.Fails(problem.InvalidJSON, "POST", "/chat/pings", unlabelled[:4000]+"\n", kit.NDJSON)
	require.Zero(t, w.Total("chat"))
}

type endlessSpaces struct{}

func (endlessSpaces) Read(p []byte) (int, error) {
	return copy(p, blank[:]), nil
}

// blank is the source of endlessSpaces. Copying it is fast, also under the race detector.
var blank = [32 << 10]byte(bytes.Repeat([]byte{' '}, 32<<10))

// TestStalledBodyTimesOut checks that a body that stops arriving fails earlier than the request's time limit.
func TestStalledBodyTimesOut(t *testing.T) {
	for _, sent := range []int{1 << 10, 100 << 10, kit.MaxBody - 1} {
		withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
			conn, begin := dial(), time.Now()
			start(t, conn, kit.MaxBody, strings.Repeat(" ", sent))
			kit.ReadResponse(t, conn).Is(t, http.StatusBadRequest)
			require.GreaterOrEqual(t, time.Since(begin), kit.RateWindow, "%d bytes", sent)
			require.LessOrEqual(t, time.Since(begin), kit.RateWindow+kit.DrainTimeout, "%d bytes", sent)
			require.NoError(t, conn.Close())
			time.Sleep(time.Minute) // until the server is done with the connection
		})
	}
}

// TestSlowBodies checks that a body below the minimum rate fails and one above it does not. The minimum rate does
// not apply after the body has arrived.
func TestSlowBodies(t *testing.T) {
	for perSecond, want := range map[int]int{
		kit.MinBodyRate / 2: http.StatusBadRequest, kit.MinBodyRate * 5 / 4: http.StatusOK,
	} {
		pause := func(ctx context.Context, _ string) error {
			time.Sleep(2 * kit.RateWindow)
			return ctx.Err()
		}
		withFakeClock(t, pause, func(t *testing.T, dial func() net.Conn) {
			conn := dial()
			const body = `{"pings":[{"user":"alice"}]}`
			start(t, conn, 25*perSecond, "")
			responded := make(chan kit.Response, 1)
			go func() { responded <- tryResponse(conn) }()
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
			(<-responded).Is(t, want, perSecond, " bytes a second")
			require.NoError(t, conn.Close())
			time.Sleep(time.Minute) // until the server is done with the connection
		})
	}
}

// TestLargeBodiesGetAResponse checks that a client that reads only after it has sent everything, as most do, gets
// the error.
func TestLargeBodiesGetAResponse(t *testing.T) {
	testenv.SkipWithRace(t, "it has to send a body within the server's drain timeout")
	t.Parallel()
	w := apitest.NewLimitedServer(t)
	const size = 32 << 20 // more than the buffers of a connection hold
	for _, c := range []struct {
		path, headers, start string
		want                 problem.Code
	}{
		{"/v1/namespaces/chat/pings", "", "", problem.BodyTooLarge},
		{"/v1/namespaces/chat/pings", kit.NDJSON + "\r\n", "{}\n", problem.InvalidUser},
		{"/v1/namespaces/chat/pings", kit.NDJSON + "\r\nExpect: 100-continue\r\n", "{}\n", problem.InvalidUser},
		{"/v1/namespaces/.hidden/pings", "", "", problem.InvalidNamespace},
		{"/v1/nothing", "", "", problem.NotFound},
	} {
		conn, what := w.Dial(), c.path+" "+c.headers
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: lastseen\r\nContent-Length: %d\r\n%s\r\n%s", c.path,
			size, c.headers, c.start)
		require.NoError(t, err, what)
		_, err = conn.Write(bytes.Repeat([]byte{' '}, size-len(c.start)))
		require.NoError(t, err, what)
		r := kit.ReadResponse(t, conn)
		require.Equal(t, string(c.want), r.JSON(t)["code"], what)
	}
}

// TestEndlessBodiesAreCutOff checks that the server does not read a refused body forever.
func TestEndlessBodiesAreCutOff(t *testing.T) {
	t.Parallel()
	conn := apitest.NewLimitedServer(t).Dial()
	_, err := fmt.Fprintf(conn, "POST /v1/nothing HTTP/1.1\r\nHost: lastseen\r\nContent-Length: %d\r\n\r\n", 1<<40)
	require.NoError(t, err)
	for range 1 << 10 {
		if _, err = conn.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
	t.Fatal("1 GiB was taken")
}

// TestLongQueries checks that a query is read or refused as a whole, and that errors quote only a part of it.
func TestLongQueries(t *testing.T) {
	w := apitest.NewLimitedServer(t)
	few := func(s string) string { return strings.Repeat(s, 9_000) } // package net/url takes 10,000 apart
	repeat := func(s string) string { return strings.Repeat(s, (80<<10)/len(s)) }
	for want, queries := range map[problem.Code][]string{
		problem.TooManyItems: {few("user=u&"), few("user=&")},
		problem.InvalidParameter: {
			repeat("user=u&"), repeat("&") /* no user at all */, few("green=1s&"), repeat(";"),
			repeat("%"),
		},
		problem.UnknownParameter: {few("a&") + "a", few("%61=%62&"), few("=&"), "user=a&" + repeat("%00")},
		problem.InvalidTime: {
			"user=a&as_of=" + repeat("9"), "user=a&as_of=1e" + repeat("9"), "user=a&as_of=2026-" + repeat("0"),
		},
		problem.InvalidDuration: {"user=a&green=" + repeat("9h"), "user=a&green=" + repeat("9")},
		problem.InvalidUser:     {"user=" + repeat("u"), "user=" + repeat("%00"), "user=" + repeat("%ff")},
	} {
		for _, query := range queries {
			r := w.Send("GET", "/chat/lookup?"+query, "")
			require.Equal(t, string(want), r.JSON(t)["code"], "%.40s: %s", query, r.Body)
			require.Less(t, len(r.Body), 8<<10, "%.40s", query)
		}
	}
}

// start sends the head of a bulk request that announces a length, and the beginning of its body.
func start(t *testing.T, conn net.Conn, length int, begin string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
		length, begin)
	require.NoError(t, err)
}

// tryResponse reads a response from a connection. It is for goroutines that cannot end the test: an error is the body.
func tryResponse(conn net.Conn) kit.Response {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return kit.Response{Body: err.Error()}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return kit.Response{Status: response.StatusCode, Header: response.Header, Body: string(body)}
}
