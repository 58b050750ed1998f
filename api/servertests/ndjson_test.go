package servertests

import (
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

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func TestNDJSON(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
		}
		require.EqualValues(t, 20_000, w.Post("/many/pings", b.String(), kit.NDJSON)["recorded"])
		require.Equal(t, 20_000, w.Total("many"))

		lines := "\n{\"user\":\"alice\"}\r\n  \n\n{\"user\":\"bob\",\"at\":100123}"
		require.EqualValues(t, 2, w.Post("/chat/pings", lines, kit.NDJSON)["recorded"],
			"blank lines, CRLF, no final newline")
		require.EqualValues(t, 1, w.Post("/chat/leaves", `{"user":"bob"}`, kit.NDJSON)["recorded"])
		require.EqualValues(t, 0, w.Post("/chat/pings", "", kit.NDJSON)["recorded"])
		longest := `{"user":"eve"` + strings.Repeat(" ", 4096-len(`{"user":"eve"}`)) + "}"
		require.EqualValues(t, 1, w.Post("/chat/pings", longest+"\n", kit.NDJSON)["recorded"])
		w.Fails(problem.BodyTooLarge, "POST", "/chat/pings", longest+" \n", kit.NDJSON)
		require.Equal(t, 3, w.Total("chat"))
	})
}

func TestLinesBeforeAnInvalidOne(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for i, bad := range []string{`{"user":""}`, `{"user":"x","at":0}`, `{`, strings.Repeat("x", 5000)} {
			namespace := fmt.Sprintf("n%d", i)
			var b strings.Builder
			for i := range 1500 {
				fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
			}
			r := w.Send("POST", "/"+namespace+"/pings", b.String()+"\n"+bad+"\n{\"user\":\"after\"}\n", kit.NDJSON)
			refusal := r.JSON(t)
			require.EqualValues(t, 1502, refusal["line"], r.Body)
			require.EqualValues(t, 1500, refusal["recorded"])
			require.Equal(t, 1500, w.Total(namespace))
		}
	})
}

// TestLinesAreRecordedOnArrival checks that lines are recorded while their stream is still open.
func TestLinesAreRecordedOnArrival(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	s := w.Upload()
	for i := range 3 {
		fmt.Fprintf(s, "{\"user\":\"u%d\"}\n{\"us", i)
		kit.Await(t, func() bool { return w.Total("chat") == i+1 })
		fmt.Fprintf(s, "er\":\"u%d\"}\n", i)
	}
	require.NoError(t, s.Close())
	require.Equal(t, "{\"recorded\":6}\n", (<-s.Response).Body)
}

// TestStoreFailsDuringStream checks that the error reports how many lines were recorded.
func TestStoreFailsDuringStream(t *testing.T) {
	for want, failure := range map[problem.Code]error{
		problem.StoreUnavailable: store.ErrUnavailable,
		problem.Overloaded:       store.ErrOverloaded,
	} {
		w := apitest.NewServer(t, kit.FailingLater(kit.FileStore(t), fmt.Errorf("%w: the cause", failure)))
		lines := strings.Repeat("{\"user\":\"a\"}\n", kit.MaxChunk+1)
		refusal := w.Fails(want, "POST", "/chat/pings", lines, kit.NDJSON)
		require.Positive(t, refusal["recorded"])
		require.EqualValues(t, refusal["line"], int(refusal["recorded"].(float64))+1)
		require.NotContains(t, refusal["detail"], "had no effect")
		require.Contains(t, w.Log.String(), "the cause")
	}
}

// endless sends lines until the server responds or ends the connection, or until limit bytes are sent. It reports
// whether the server did.
func endless(t *testing.T, w *apitest.Server, line string, limit int) (found kit.Response, ended bool) {
	t.Helper()
	conn := w.Dial() // stays open, so that the caller can measure what the stream takes
	_, err := io.WriteString(conn, chunkedPings)
	require.NoError(t, err)
	responded := make(chan kit.Response, 1)
	go func() { responded <- tryResponse(conn) }()
	block := strings.Repeat(line, max(1, (64<<10)/len(line)))
	for sent := 0; sent < limit && len(responded) == 0; sent += len(block) {
		if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(block), block); err != nil {
			return <-responded, true
		}
	}
	if len(responded) == 0 {
		return kit.Response{}, false
	}
	return <-responded, true
}

// chunkedPings is the head of a stream of pings.
const chunkedPings = "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n" + kit.NDJSON +
	"\r\nTransfer-Encoding: chunked\r\n\r\n"

// TestEndlessLines checks that a line without an end is refused, and that a stream without an end uses no more
// memory than a short one.
func TestEndlessLines(t *testing.T) {
	w := apitest.NewLimitedServer(t)
	for _, start := range []string{`{"user":"`, "[", " ", `{"at":1`} {
		response, ended := endless(t, w, strings.Repeat(start, 10), 1<<30)
		require.True(t, ended, start)
		require.Equal(t, string(problem.BodyTooLarge), response.JSON(t)["code"], response.Body)
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
		kit.Await(t, freed, "%.20q", line)
	}
	// What the server has not read when the client closes the connection is still recorded.
	kit.Await(t, func() bool { return w.Total("chat") == 2 })
}

// TestSlowStreamContinues checks that a stream has no time limit as long as lines arrive.
func TestSlowStreamContinues(t *testing.T) {
	withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		_, err := io.WriteString(conn, chunkedPings)
		require.NoError(t, err)
		const line, lines = "{\"user\":\"alice\"}\n", 100
		for range lines {
			time.Sleep(kit.LineTimeout - time.Second)
			_, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(line), line)
			require.NoError(t, err)
		}
		go io.WriteString(conn, "0\r\n\r\n")
		require.JSONEq(t, fmt.Sprintf(`{"recorded":%d}`, lines), kit.ReadResponse(t, conn).Body)
	})
}

// TestStreamsAreReauthorized checks that a caller that loses the permission during a stream cannot record more
// lines.
func TestStreamsAreReauthorized(t *testing.T) {
	key, secret := kit.NewKey("backend", "*", auth.Ping)
	other, _ := kit.NewKey("other", "*", auth.Scopes()...)
	elsewhere := key
	elsewhere.Namespaces = []auth.Pattern{"elsewhere"}
	authenticator := func(keys ...auth.Key) *auth.Authenticator {
		return kit.NewAuthenticator(t, auth.Config{Keys: keys})
	}
	for name, after := range map[string]struct {
		authenticator *auth.Authenticator
		code          problem.Code
	}{
		"a key that was removed":              {authenticator(other), problem.Unauthenticated},
		"a key that is for another namespace": {authenticator(elsewhere, other), problem.Forbidden},
		"a key that is as it was":             {authenticator(key, other), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := apitest.NewAuthServer(t, kit.FileStore(t), authenticator(key, other))
			s := w.Upload(kit.Bearer(secret))
			fmt.Fprint(s, "{\"user\":\"alice\"}\n\n{\"user\":\"bob\"}\n")
			kit.Await(t, func() bool { return w.Stored() == 2 })
			w.Reload(func(c *api.Config) { c.Auth = after.authenticator })
			fmt.Fprint(s, "{\"user\":\"eve\"}\n")
			require.NoError(t, s.Close())
			r := <-s.Response
			if after.code == "" {
				r.Is(t, http.StatusOK)
				require.EqualValues(t, 3, w.Stored())
				return
			}
			refusal := r.Is(t, after.code.Type().Status).JSON(t)
			require.Equal(t, string(after.code), refusal["code"])
			require.EqualValues(t, 4, refusal["line"])
			require.EqualValues(t, 2, refusal["recorded"])
			require.Contains(t, r.Header.Get("WWW-Authenticate"), "Bearer")
			require.EqualValues(t, 2, w.Stored(), "nothing of it is recorded")
		})
	}
}

// FuzzLines checks that the sizes in which a stream arrives make no difference.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"{\"user\":\"alice\"}\n{\"user\":\"bob\",\"at\":1}", "\n\r\n \n{\"user\":\"a\"}\r\n", "{\n", "{}\n",
		"{\"user\":\"a\"} {\"user\":\"b\"}", "\x00", strings.Repeat(" ", 4097),
	} {
		f.Add(seed)
	}
	handler := apitest.FuzzHandler(f)
	f.Fuzz(func(t *testing.T, content string) {
		var responses []string
		for _, body := range []io.Reader{
			strings.NewReader(content), iotest.OneByteReader(strings.NewReader(content)),
			iotest.DataErrReader(strings.NewReader(content)),
		} {
			request := httptest.NewRequest("POST", "http://localhost/v1/namespaces/chat/pings", body)
			request.Header.Set(echo.HeaderContentType, "application/x-ndjson")
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
