package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func TestNDJSON(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
		}
		require.EqualValues(t, 20_000, w.post("/many/pings", b.String(), ndjson)["recorded"])
		require.Equal(t, 20_000, w.total("many"))

		lines := "\n{\"user\":\"alice\"}\r\n  \n\n{\"user\":\"bob\",\"at\":100123}"
		require.EqualValues(t, 2, w.post("/chat/pings", lines, ndjson)["recorded"],
			"blank lines, CRLF, no final newline")
		require.EqualValues(t, 1, w.post("/chat/leaves", `{"user":"bob"}`, ndjson)["recorded"])
		require.EqualValues(t, 0, w.post("/chat/pings", "", ndjson)["recorded"])
		longest := `{"user":"eve"` + strings.Repeat(" ", 4096-len(`{"user":"eve"}`)) + "}"
		require.EqualValues(t, 1, w.post("/chat/pings", longest+"\n", ndjson)["recorded"])
		w.fails(problem.BodyTooLarge, "POST", "/chat/pings", longest+" \n", ndjson)
		require.Equal(t, 3, w.total("chat"))
	})
}

func TestLinesBeforeAnInvalidOne(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		for i, bad := range []string{`{"user":""}`, `{"user":"x","at":0}`, `{`, strings.Repeat("x", 5000)} {
			namespace := fmt.Sprintf("n%d", i)
			var b strings.Builder
			for i := range 1500 {
				fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
			}
			r := w.send("POST", "/"+namespace+"/pings", b.String()+"\n"+bad+"\n{\"user\":\"after\"}\n", ndjson)
			refusal := r.json(t)
			require.EqualValues(t, 1502, refusal["line"], r.body)
			require.EqualValues(t, 1500, refusal["recorded"])
			require.Equal(t, 1500, w.total(namespace))
		}
	})
}

// TestLinesAreRecordedOnArrival checks that lines are recorded while their stream is still open.
func TestLinesAreRecordedOnArrival(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	s := w.upload()
	for i := range 3 {
		fmt.Fprintf(s, "{\"user\":\"u%d\"}\n{\"us", i)
		await(t, func() bool { return w.total("chat") == i+1 })
		fmt.Fprintf(s, "er\":\"u%d\"}\n", i)
	}
	require.NoError(t, s.Close())
	require.Equal(t, "{\"recorded\":6}\n", (<-s.response).body)
}

// TestStoreFailsDuringStream checks that the error reports how many lines were recorded.
func TestStoreFailsDuringStream(t *testing.T) {
	for want, failure := range map[problem.Code]error{
		problem.StoreUnavailable: store.ErrUnavailable,
		problem.Overloaded:       store.ErrOverloaded,
	} {
		w := newTestServer(t, failingLater(fileStore(t), fmt.Errorf("%w: the cause", failure)))
		refusal := w.fails(want, "POST", "/chat/pings", strings.Repeat("{\"user\":\"a\"}\n", maxChunk+1), ndjson)
		require.Positive(t, refusal["recorded"])
		require.EqualValues(t, refusal["line"], int(refusal["recorded"].(float64))+1)
		require.NotContains(t, refusal["detail"], "had no effect")
		require.Contains(t, w.log.String(), "the cause")
	}
}

// endless sends lines until the server responds or ends the connection, or until limit bytes are sent. It reports
// whether the server did.
func endless(t *testing.T, w *testServer, line string, limit int) (found testResponse, ended bool) {
	t.Helper()
	conn := w.dial() // stays open, so that the caller can measure what the stream takes
	_, err := io.WriteString(conn, chunkedPings)
	require.NoError(t, err)
	responded := make(chan testResponse, 1)
	go func() { responded <- tryResponse(conn) }()
	block := strings.Repeat(line, max(1, (64<<10)/len(line)))
	for sent := 0; sent < limit && len(responded) == 0; sent += len(block) {
		if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(block), block); err != nil {
			return <-responded, true
		}
	}
	if len(responded) == 0 {
		return testResponse{}, false
	}
	return <-responded, true
}

// chunkedPings is the head of a stream of pings.
const chunkedPings = "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n" + ndjson +
	"\r\nTransfer-Encoding: chunked\r\n\r\n"

// TestEndlessLines checks that a line without an end is refused, and that a stream without an end uses no more
// memory than a short one.
func TestEndlessLines(t *testing.T) {
	w := newLimitedServer(t)
	for _, start := range []string{`{"user":"`, "[", " ", `{"at":1`} {
		response, ended := endless(t, w, strings.Repeat(start, 10), 1<<30)
		require.True(t, ended, start)
		require.Equal(t, string(problem.BodyTooLarge), response.json(t)["code"], response.body)
	}
	limit := testenv.Choose(16<<20, 1<<20)
	for _, line := range []string{
		"\n", "\r\n", "{\"user\":\"alice\"}\n", `{"user":"bob"}` + strings.Repeat(" ", 4000) + "\n",
	} {
		before := heap()
		_, ended := endless(t, w, line, limit)
		require.False(t, ended, "%.20q", line)
		// What the server is still reading makes garbage while it is collected.
		freed := func() bool { return heap() < before+8<<20 }
		await(t, freed, "%.20q", line)
	}
	// What the server has not read when the client closes the connection is still recorded.
	await(t, func() bool { return w.total("chat") == 2 })
}

// TestSlowStreamContinues checks that a stream has no time limit as long as lines arrive.
func TestSlowStreamContinues(t *testing.T) {
	withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		_, err := io.WriteString(conn, chunkedPings)
		require.NoError(t, err)
		const line, lines = "{\"user\":\"alice\"}\n", 100
		for range lines {
			time.Sleep(lineTimeout - time.Second)
			_, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(line), line)
			require.NoError(t, err)
		}
		go io.WriteString(conn, "0\r\n\r\n")
		require.JSONEq(t, fmt.Sprintf(`{"recorded":%d}`, lines), readResponse(t, conn).body)
	})
}

// upload is an upload of lines that continues until the test ends it.
type upload struct {
	*io.PipeWriter
	response chan testResponse
}

// upload starts an upload.
func (w *testServer) upload(headers ...string) upload {
	w.t.Helper()
	reader, writer := io.Pipe()
	w.t.Cleanup(func() { _ = writer.Close() })
	request, err := http.NewRequestWithContext(context.Background(), "POST", w.url+"/v1/namespaces/chat/pings", reader)
	require.NoError(w.t, err)
	addHeaders(request.Header, append(headers, ndjson))
	s := upload{writer, make(chan testResponse, 1)}
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			s.response <- testResponse{body: err.Error()}
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		s.response <- testResponse{response.StatusCode, response.Header, string(body)}
	}()
	return s
}

// TestStreamsAreReauthorized checks that a caller that loses the permission during a stream cannot record more
// lines.
func TestStreamsAreReauthorized(t *testing.T) {
	key, secret := newKey("backend", "*", auth.Ping)
	other, _ := newKey("other", "*", auth.Scopes()...)
	elsewhere := key
	elsewhere.Namespaces = []auth.Pattern{"elsewhere"}
	authenticator := func(keys ...auth.Key) *auth.Authenticator { return newAuthenticator(t, auth.Config{Keys: keys}) }
	for name, after := range map[string]struct {
		authenticator *auth.Authenticator
		code          problem.Code
	}{
		"a key that was removed":              {authenticator(other), problem.Unauthenticated},
		"a key that is for another namespace": {authenticator(elsewhere, other), problem.Forbidden},
		"a key that is as it was":             {authenticator(key, other), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAuthServer(t, fileStore(t), authenticator(key, other))
			s := w.upload(bearer(secret))
			fmt.Fprint(s, "{\"user\":\"alice\"}\n\n{\"user\":\"bob\"}\n")
			await(t, func() bool { return w.stored() == 2 })
			w.reload(func(c *Config) { c.Auth = after.authenticator })
			fmt.Fprint(s, "{\"user\":\"eve\"}\n")
			require.NoError(t, s.Close())
			r := <-s.response
			if after.code == "" {
				r.is(t, http.StatusOK)
				require.EqualValues(t, 3, w.stored())
				return
			}
			refusal := r.is(t, after.code.Type().Status).json(t)
			require.Equal(t, string(after.code), refusal["code"])
			require.EqualValues(t, 4, refusal["line"])
			require.EqualValues(t, 2, refusal["recorded"])
			require.Contains(t, r.header.Get("WWW-Authenticate"), "Bearer")
			require.EqualValues(t, 2, w.stored(), "nothing of it is recorded")
		})
	}
}

// stored returns how many users the store has in the namespace chat.
func (w *testServer) stored() int64 {
	w.t.Helper()
	counts, err := w.store.Count(w.t.Context(), "chat", []lastseen.Range{{From: 1, To: testNow + maxAhead}})
	require.NoError(w.t, err)
	return counts[0]
}

// TestStreamMemory checks that the memory of a stream is counted, and released after each chunk.
func TestStreamMemory(t *testing.T) {
	t.Parallel()
	memory := newBodyMemory(MinBodyMemory)
	w := newTestServer(t, fileStore(t), func(c *Config) { withBodies(c, memory) })
	used := func() int64 {
		memory.mu.Lock()
		defer memory.mu.Unlock()
		return memory.used
	}
	s := w.upload()
	for i := range 3 {
		fmt.Fprintf(s, "{\"user\":\"u%d\"}\n{\"user\":", i)
		await(t, func() bool { return w.total("chat") == 2*i+1 })
		await(t, func() bool { return used() == readBuffer }, "between two chunks")
		fmt.Fprintf(s, "\"v%d\"}\n", i)
		await(t, func() bool { return w.total("chat") == 2*i+2 })
	}
	await(t, func() bool { return used() == readBuffer }, "between two chunks")
	full := bodyHold{memory: memory, key: limit.ByAPIKey("another")}
	require.NoError(t, full.grow(int(memory.limit-used())))
	w.fails(problem.Overloaded, "POST", "/chat/pings", "{\"user\":\"bob\"}\n", ndjson)
	fmt.Fprint(s, "{\"user\":\"eve\"}\n")
	require.NoError(t, s.Close()) // or the server would wait for more
	r := (<-s.response).is(t, http.StatusServiceUnavailable)
	require.EqualValues(t, 6, r.json(t)["recorded"], r.body)
	full.release()
	require.Zero(t, used())
}

// FuzzLines checks that the sizes in which a stream arrives make no difference.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"{\"user\":\"alice\"}\n{\"user\":\"bob\",\"at\":1}", "\n\r\n \n{\"user\":\"a\"}\r\n", "{\n", "{}\n",
		"{\"user\":\"a\"} {\"user\":\"b\"}", "\x00", strings.Repeat(" ", 4097),
	} {
		f.Add(seed)
	}
	handler := fuzzHandler(f)
	f.Fuzz(func(t *testing.T, content string) {
		var responses []string
		for _, body := range []io.Reader{
			strings.NewReader(content), iotest.OneByteReader(strings.NewReader(content)),
			iotest.DataErrReader(strings.NewReader(content)),
		} {
			request := httptest.NewRequest("POST", "http://localhost/v1/namespaces/chat/pings", body)
			request.Header.Set(echo.HeaderContentType, mediaNDJSON)
			request.Header.Set(echo.HeaderXRequestID, "one")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			require.Less(t, recorder.Code, http.StatusInternalServerError, recorder.Body)
			responses = append(responses, recorder.Body.String())
		}
		require.Equal(t, responses[0], responses[1])
		require.Equal(t, responses[0], responses[2])
	})
}
