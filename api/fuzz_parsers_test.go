package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/filestore"
)

// requireProblem checks that an error is one that a caller may see: text of a bounded length that blames the
// caller.
func requireProblem(t *testing.T, err error) *apiError {
	t.Helper()
	var problem *apiError
	require.ErrorAs(t, err, &problem)
	require.Less(t, problem.code.problemType().status, http.StatusInternalServerError, problem.Error())
	require.True(t, utf8.ValidString(problem.detail), problem.detail)
	require.Less(t, len(problem.detail), 1<<10, problem.detail)
	return problem
}

// FuzzQuery: a query is refused, or asks for a valid list.
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
		p, err := readListParams(q, view{noon, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}})
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

// FuzzBody: a body is refused with text for the caller, or is what the standard library reads, too.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"pings":[{"user":"alice"},{"user":"bob","at":100123.5}]}`, `{"pings":[]}`, `{"pings":null}`,
		`{"pings":[null]}`, "\ufeff{}",
		`{"pings":[{"user":"\ud800"}]}`, `{"pings":[{"user":"a","user":"b"}]}`, `{"PINGS":[]}`, `{"pings":[[[[`,
		`{"pings":[{"at":{"a":[1]}}]}`, `null`, `{} {}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, body := range []any{&pingsBody{}, &leavesBody{}, &lookupBody{}, &pingBody{}, &leaveBody{}} {
			if err := unmarshal(data, body); err != nil {
				requireProblem(t, err)
			}
		}
		var body pingsBody
		if unmarshal(data, &body) != nil || body.Pings == nil {
			return
		}
		require.True(t, utf8.Valid(data))
		for _, i := range *body.Pings {
			if _, err := i.sighting(noon); err != nil {
				requireProblem(t, err)
			}
		}
	})
}

// fuzzHandler serves a store whose clock stands still.
func fuzzHandler(f *testing.F) http.Handler {
	f.Helper()
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(f.TempDir(), "fuzz.db"), Sync: time.Hour})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	return New(Config{
		Store: &clocked{Store: s, now: noon}, Logger: slog.New(slog.DiscardHandler),
		Random: func() float64 { return 0 },
		Settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour},
			PingInterval: time.Second,
		},
	})
}

// FuzzLines: how a stream of lines is cut into pieces on its way makes no difference.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"{\"user\":\"alice\"}\n{\"user\":\"bob\",\"at\":1}", "\n\r\n \n{\"user\":\"a\"}\r\n", "{\n", "{}\n",
		"{\"user\":\"a\"} {\"user\":\"b\"}", "\x00", strings.Repeat(" ", 4097),
	} {
		f.Add(seed)
	}
	handler := fuzzHandler(f)
	f.Fuzz(func(t *testing.T, content string) {
		var answers []string
		for _, body := range []io.Reader{
			strings.NewReader(content), iotest.OneByteReader(strings.NewReader(content)),
			iotest.DataErrReader(strings.NewReader(content)),
		} {
			request := httptest.NewRequest(http.MethodPost, "http://localhost/v1/namespaces/chat/pings", body)
			request.Header.Set(echo.HeaderContentType, mediaNDJSON)
			request.Header.Set(echo.HeaderXRequestID, "one")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			require.Less(t, recorder.Code, http.StatusInternalServerError, recorder.Body)
			answers = append(answers, recorder.Body.String())
		}
		require.Equal(t, answers[0], answers[1])
		require.Equal(t, answers[0], answers[2])
	})
}

// FuzzHeaders: what stands in front of an entry of a list does not hide it.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{
		"return=minimal", `W/"abc", *`, "gzip;q=0.5, br", "application/json; charset=utf-8",
		`text/plain; a="b`, "gzip;q=inf", ",;=\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		require.True(t, etagMatches([]string{value + `, W/"tag"`}, `"tag"`))
		require.True(t, etagMatches([]string{value, `"tag"`}, `"tag"`))
		require.True(t, prefersMinimal(&http.Request{Header: http.Header{"Prefer": {value + ",return=minimal"}}}))
		if !strings.Contains(strings.ToLower(value), "gzip") {
			require.True(t, acceptsGzip([]string{value, "gzip"}))
			require.False(t, !strings.Contains(value, "*") && acceptsGzip([]string{value}))
		}
		c := echo.New().NewContext(&http.Request{Header: http.Header{"Content-Type": {value}}}, nil)
		media, err := mediaType(c)
		if err != nil {
			requireProblem(t, err)
			return
		}
		require.Contains(t, []string{mediaJSON, mediaNDJSON}, media)
		require.Equal(t, validRequestID(value), validRequestID(strings.Clone(value)))
	})
}

// script is a connection on which a client says everything at once and then no more.
type script struct {
	net.Conn // for the addresses
	input    *bytes.Reader
	output   bytes.Buffer
	closed   func()
}

func (s *script) Read(p []byte) (int, error)       { return s.input.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return s.output.Write(p) }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }

func (s *script) Close() error {
	s.closed()
	return nil
}

// FuzzConnection: whatever arrives on a connection, it is answered without a failure, or ended.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{
		pingStart + "\r\n" + smuggled, pingStart + "Content-Length: 2\r\n\r\n{}",
		pingStart + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"GET /v1/namespaces/chat/users?limit=1&cursor=A HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nPrefer: return=minimal\r\n\r\n",
		"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n" + ndjson +
			"\r\nContent-Length: 17\r\n\r\n{\"user\":\"alice\"}\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /v1/namespaces/chat?confirm=chat HTTP/1.0\r\n\r\n",
		"\x16\x03\x01",
		"GET http://u:p@h/docs/%2e%2e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	server := NewServer(fuzzHandler(f), slog.New(slog.DiscardHandler))
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	go server.Serve(p)
	f.Cleanup(func() { _ = server.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		done := make(chan struct{})
		conn := &script{input: bytes.NewReader(data), closed: sync.OnceFunc(func() { close(done) })}
		p.conns <- conn
		<-done
		answers := bufio.NewReader(&conn.output)
		for {
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
					bytes.Contains(data, []byte("HEAD")), "%v", err)
				return
			}
			require.NotEqual(t, http.StatusInternalServerError, response.StatusCode,
				"503 is for clients that have gone")
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err != nil || bytes.Contains(data, []byte("HEAD")) {
				return
			}
		}
	})
}

// FuzzForwardedFor: whatever stands in X-Forwarded-For before what a trusted proxy added, it changes nothing.
func FuzzForwardedFor(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "10.1.0.1, 10.1.0.2", "::1", "[::1]:80", "unknown, _hidden",
		"203.0.113.7:443", ",,", "\x00",
	} {
		f.Add(seed)
	}
	trusted := unmapped([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	find := func(r *http.Request) string { return trusted.client(r).String() }
	f.Fuzz(func(t *testing.T, said string) {
		behind := &http.Request{
			RemoteAddr: "10.1.2.3:1",
			Header:     http.Header{echo.HeaderXForwardedFor: {said + ", 203.0.113.7"}},
		}
		require.Equal(t, "203.0.113.7", find(behind))
		behind.Header[echo.HeaderXForwardedFor] = []string{said, "203.0.113.7"}
		require.Equal(t, "203.0.113.7", find(behind))
		direct := &http.Request{RemoteAddr: "203.0.113.7:1", Header: http.Header{echo.HeaderXForwardedFor: {said}}}
		require.Equal(t, "203.0.113.7", find(direct))
	})
}

// FuzzOrigin: an origin that is taken is one as browsers send it, or a pattern of them that matches no other host.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{
		"*", "https://app.example.com", "http://localhost:3000", "https://a/", "null", "https://A.example",
		"https://[::1]:1", "https://*.a", "https://u@a",
		"https://*.example.com:1", "http://localhost:*", "http://[::1]:*",
	} {
		f.Add(seed, "https://a.example.com")
		f.Add("https://*.example.com", seed)
		f.Add("http://localhost:*", seed)
	}
	f.Fuzz(func(t *testing.T, allowed, origin string) {
		if CheckOrigin(allowed) != nil || allowed == "*" {
			return
		}
		exact := strings.NewReplacer("://*.", "://", ":*", "").Replace(allowed)
		u, err := url.Parse(exact)
		require.NoError(t, err)
		require.Equal(t, exact, u.Scheme+"://"+u.Host)
		require.NotEmpty(t, u.Hostname())
		require.NotContains(t, exact, "*")
		if !allowsOrigin([]string{allowed}, origin) {
			return
		}
		sent, err := url.Parse(origin)
		require.NoError(t, err)
		require.Equal(t, origin, sent.Scheme+"://"+sent.Host)
		require.Equal(t, u.Scheme, sent.Scheme)
		require.True(t, sent.Hostname() == u.Hostname() && !strings.Contains(allowed, "*.") ||
			strings.HasSuffix(sent.Hostname(), "."+u.Hostname()) && strings.Contains(allowed, "*."))
		require.True(t, sent.Port() == u.Port() || strings.HasSuffix(allowed, ":*"))
	})
}
