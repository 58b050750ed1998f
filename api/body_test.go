package api

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
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
		w.send("POST", path, most).is(t, http.StatusOK, path)
		w.fails(problem.BodyTooLarge, "POST", path, most+" ")
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
			"/chat/pings", "/chat/leaves", "/chat/lookup", "/chat/users/alice/ping", "/chat/users/alice/leave",
		} {
			if strings.Contains(path, "/users/") {
				body = body[:min(len(body), maxOneBody)]
			}
			refusal := w.fails(problem.UnsupportedMediaType, "POST", path, body, "Content-Encoding: "+encoding)
			require.Less(t, len(refusal["detail"].(string)), 200)
		}
		w.fails(problem.UnsupportedMediaType, "POST", "/chat/pings", body, "Content-Encoding: "+encoding, ndjson)
	}
	unlabelled := gzipped.String()
	w.fails(problem.InvalidJSON, "POST", "/chat/pings", unlabelled)
	w.fails(problem.InvalidJSON, "POST", "/chat/pings", unlabelled[:4000]+"\n", ndjson)
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
		r := httptest.NewRequest("POST", "/", iotest.ErrReader(io.ErrUnexpectedEOF))
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
		withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
			conn, begin := dial(), time.Now()
			start(t, conn, maxBody, strings.Repeat(" ", sent))
			readResponse(t, conn).is(t, http.StatusBadRequest)
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
		minBodyRate / 2: http.StatusBadRequest, minBodyRate * 5 / 4: http.StatusOK,
	} {
		pause := func(ctx context.Context, _ string) error {
			time.Sleep(2 * rateWindow)
			return ctx.Err()
		}
		withFakeClock(t, pause, func(t *testing.T, dial func() net.Conn) {
			conn := dial()
			const body = `{"pings":[{"user":"alice"}]}`
			start(t, conn, 25*perSecond, "")
			responded := make(chan testResponse, 1)
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
			(<-responded).is(t, want, perSecond, " bytes a second")
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
	w := newLimitedServer(t)
	const size = 32 << 20 // more than the buffers of a connection hold
	for _, c := range []struct {
		path, headers, start string
		want                 problem.Code
	}{
		{"/v1/namespaces/chat/pings", "", "", problem.BodyTooLarge},
		{"/v1/namespaces/chat/pings", ndjson + "\r\n", "{}\n", problem.InvalidUser},
		{"/v1/namespaces/chat/pings", ndjson + "\r\nExpect: 100-continue\r\n", "{}\n", problem.InvalidUser},
		{"/v1/namespaces/.hidden/pings", "", "", problem.InvalidNamespace},
		{"/v1/nothing", "", "", problem.NotFound},
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

// requireValid checks the parameters of a list.
func requireValid(t *testing.T, p listParams) {
	t.Helper()
	require.NoError(t, p.thresholds.Validate())
	require.True(t, 0 <= p.from && p.from <= p.to && p.to <= p.asOf && p.asOf <= lastseen.MaxInstant, "%+v", p)
	require.True(t, 0 <= p.offset && p.offset <= maxLimit, "%+v", p)
	require.Contains(t, []store.Order{store.Newest, store.Oldest}, p.order)
	require.Subset(t, lastseen.Statuses(), p.statuses)
	values, err := url.ParseQuery(p.canonical)
	require.NoError(t, err)
	again, err := readListParams(query(values), view{})
	require.NoError(t, err)
	require.Equal(t, p, again, "the canonical query asks for the same list")
}

// TestLongQueries checks that a query is read or refused as a whole, and that errors quote only a part of it.
func TestLongQueries(t *testing.T) {
	w := newLimitedServer(t)
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
			r := w.send("GET", "/chat/lookup?"+query, "")
			require.Equal(t, string(want), r.json(t)["code"], "%.40s: %s", query, r.body)
			require.Less(t, len(r.body), 8<<10, "%.40s", query)
		}
	}
}

// FuzzQuery checks that a query is refused or describes a valid list.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"status=green&status=grey&limit=7&order=oldest&from=1&to=2026-11-20T12:00:00Z&as_of=1795176000&green=1s&yellow=2m&offset=3",
		"utm_source=x&_=1", "limit=%31", "green=5m&yellow=1m", "a;b", "%", "as_of=1e9", "from=-1", "user=&user=%ff",
	} {
		f.Add(seed)
	}
	list := evaluation("status", "from", "to", "order", "limit", "cursor", "offset", "user")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, list)
		if err != nil {
			requireProblem(t, err)
			return
		}
		p, err := readListParams(q, view{testNow, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, testNow})
		if err != nil {
			requireProblem(t, err)
			return
		}
		requireValid(t, p)
		for name := range q {
			require.Contains(t, list, name)
		}
	})
}
