package servertests

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

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestSmuggling sends requests whose end is ambiguous, with another request behind them. The server must not read
// the second one.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	const chunked, keepAlive = "Transfer-Encoding: chunked\r\n", "Connection: keep-alive\r\n"
	http10 := strings.Replace(pingStart, "1.1", "1.0", 1) + keepAlive
	w := apitest.NewLimitedServer(t)
	for _, c := range []struct {
		name, raw string
		status    int
	}{
		{"both lengths, the shorter one first", pingStart + "Content-Length: 5\r\n" + chunked + "\r\n0\r\n\r\n", 200},
		{"both lengths, the chunks first", pingStart + chunked + "Content-Length: 100\r\n\r\n0\r\n\r\n", 200},
		{"both lengths in HTTP/1.0", http10 + "Content-Length: 2\r\n" + chunked + "\r\n{}", 200},
		{"chunks in HTTP/1.0", http10 + chunked + "\r\n2\r\n{}\r\n0\r\n\r\n", 200},
		{"two lengths", pingStart + "Content-Length: 2\r\nContent-Length: 0\r\n\r\n{}", 400},
		{"a list of lengths", pingStart + "Content-Length: 2, 2\r\n\r\n{}", 400},
		{"a length with a sign", pingStart + "Content-Length: +2\r\n\r\n{}", 400},
		{"a negative length", pingStart + "Content-Length: -1\r\n\r\n{}", 400},
		{"a hexadecimal length", pingStart + "Content-Length: 0x2\r\n\r\n{}", 400},
		{"an empty length", pingStart + "Content-Length:\r\n\r\n{}", 400},
		{"a length beyond 64 bits", pingStart + "Content-Length: 99999999999999999999\r\n\r\n{}", 400},
		{"an unknown coding", pingStart + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked, and not at the end", pingStart + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
		{"chunked twice", pingStart + chunked + chunked + "\r\n0\r\n\r\n", 501},
		{"compressed chunks", pingStart + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		{"a space before the colon", pingStart + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		{"a control character before the value", pingStart + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
		{"a length in a bare CR", pingStart + "X: a\rContent-Length: 5\r\n\r\n", 400},
		{"a chunk line that ends in LF", pingStart + chunked + "\r\n2\n{}\n0\n\n", 400},
		{"a chunk extension that ends in LF", pingStart + chunked + "\r\n2;\n{}\r\n0\r\n\r\n", 400},
		{"a negative chunk", pingStart + chunked + "\r\n-2\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk with 0x", pingStart + chunked + "\r\n0x2\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk beyond 64 bits", pingStart + chunked + "\r\n10000000000000002\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk shorter than its length", pingStart + chunked + "\r\n3\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk longer than its length", pingStart + chunked + "\r\n1\r\n{}\r\n0\r\n\r\n", 400},
		{"an endless chunk extension", pingStart + chunked + "\r\n2;" + strings.Repeat("a", 1<<20), 400},
		{"chunks of one byte with extensions", pingStart + chunked + "\r\n" +
			strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\n \r\n", 1000), 400},
		{"a bomb of trailers", pingStart + chunked + "\r\n2\r\n{}\r\n0\r\n" + strings.Repeat("X: y\r\n", 100_000) +
			"\r\n", 400},
		{"a length in the trailers", pingStart + chunked +
			"Trailer: Content-Length\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", 400},
	} {
		responses := w.Exchange(c.raw + smuggled)
		require.Len(t, responses, 1, c.name)
		require.Equal(t, c.status, responses[0].Status, "%s: %s", c.name, responses[0].Body)
		require.Nil(t, w.Get("/chat/users/mallory")["last_seen"], "%s: another request was smuggled in", c.name)
	}
	require.Len(t, w.Exchange(pingStart+"Content-Length: 2\r\n\r\n{}"+smuggled), 2, "two good requests are two")
	require.NotNil(t, w.Get("/chat/users/mallory")["last_seen"])
}

// TestMalformedRequests sends requests that are barely HTTP and checks the status of each response.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	const host = "Host: lastseen\r\n"
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + host + strings.Join(headers, "") + "Connection: close\r\n\r\n"
	}
	method := func(name, target string) string { return name + strings.TrimPrefix(get(target), "GET") }
	user := "/v1/namespaces/chat/users/"
	w := apitest.NewLimitedServer(t)
	for _, c := range []struct {
		name, raw string
		status    int
	}{
		{"HTTP/0.9", "GET /healthz\r\n\r\n", 400},
		{"HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", 200},
		{"HTTP/2.0 by its line only", "GET /healthz HTTP/2.0\r\n" + host + "\r\n", 505},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404},
		{"a version in lower case", "GET /healthz http/1.1\r\n" + host + "\r\n", 400},
		{"TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
		{"Redis", "*1\r\n$4\r\nPING\r\n\r\n", 400},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400},
		{"two hosts", get("/healthz", "Host: evil\r\n"), 400},
		{"a host with a space", "GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"an upgrade", get("/healthz", "Upgrade: h2c\r\n"), 200},
		{"no colon", get("/healthz", "nothing\r\n"), 400},
		{"no name", get("/healthz", ": x\r\n"), 400},
		{"a name with a NUL", get("/healthz", "a\x00: x\r\n"), 400},
		{"a value with a NUL", get("/healthz", "X: a\x00b\r\n"), 400},
		{"a value with a DEL", get("/healthz", "X: a\x7fb\r\n"), 400},
		{"a header before the first", "GET /healthz HTTP/1.1\r\n X: y\r\n" + host + "\r\n", 400},
		{"a header of 200 KiB", get("/healthz", "X: "+strings.Repeat("x", 200<<10)+"\r\n"), 431},
		{"40,000 headers", get("/healthz", strings.Repeat("a:b\r\n", 40_000)), 431},
		{"a query of 200 KiB", get("/healthz?" + strings.Repeat("a", 200<<10)), 431},
		{"200 headers of one name", get("/healthz", strings.Repeat("a:b\r\n", 200)), 431},
		{"200 headers", get("/healthz", strings.Join(manyHeaders(200), "\r\n")+"\r\n"), 431},
		{"90 headers", get("/healthz", strings.Join(manyHeaders(90), "\r\n")+"\r\n"), 200},
		{"an odd expectation", get("/healthz", "Expect: magic\r\n"), 417},
		{"another method in a header", "POST" + get(user+"alice", "X-HTTP-Method-Override: DELETE\r\n")[3:], 405},
		{"another path in a header", get("/nothing", "X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n"), 404},
		{"a method in lower case", method("get", "/healthz"), 405},
		{"a method of punctuation", method("!#$%&'*+-.^_`|~", "/healthz"), 405},
		{"a method of 70,000 letters", method(strings.Repeat("G", 70_000), "/healthz"), 405},
		{"a method with an @", method("G@T", "/healthz"), 400},
		{"a method with a NUL", method("G\x00T", "/healthz"), 400},
		{"a method that is not ASCII", method("GÉT", "/healthz"), 400},
		{"no method", method("", "/healthz"), 400},
		{"a tunnel", method("CONNECT", "evil:443"), 404},
		{"a tunnel to a path", method("CONNECT", "/healthz"), 405},
		{"a whole URL", get("http://evil/healthz"), 200},
		{"a URL without a path", get("http://evil"), 404},
		{"a URL with nothing but a query", get("http://evil?x=1"), 404},
		{"a URL of another kind", get("file:///etc/passwd"), 404},
		{"a star", get("*"), 404},
		{"no slash", get("healthz"), 400},
		{"a fragment", get("/healthz#x"), 404},
		{"two slashes", get("//healthz"), 400},
		{"a host in the path", get("//evil/docs"), 400},
		{"nothing but slashes", get("//"), 404},
		{"a space", get("/v1/namespaces/a b"), 400},
		{"a control character", get(user + "a\x01b"), 400},
		{"a DEL", get(user + "a\x7fb"), 400},
		{"not UTF-8", get(user + "a\xffb"), 400},
		{"a percent sign alone", get(user + "%"), 400},
		{"a percent sign before no number", get(user + "%zz"), 400},
	} {
		responses := w.Exchange(c.raw)
		require.Len(t, responses, 1, c.name)
		require.Equal(t, c.status, responses[0].Status, "%s: %s", c.name, responses[0].Body)
		require.Less(t, len(responses[0].Body), 2<<10, "%s: %s", c.name, responses[0].Body)
	}
	require.Zero(t, w.Total("chat"))
}

// TestLongHeaders checks that headers with lists accept long ones, and that their last entry counts as much as the
// first.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
	const user = kit.AliceUser + "?as_of=100000"
	for _, filler := range []string{
		",", " ,\t", "x,", `W/"x",`, "*/*,", "a;b=c,", ";,", "=,", `"`, `\",`, "return=,", "gzip;q=,",
	} {
		bomb := strings.Repeat(filler, (80<<10)/len(filler))
		prefer := "Prefer: " + bomb[:1000] + ",return=minimal"
		w.Send("POST", kit.AlicePing, "", "Prefer: "+bomb, prefer).Is(t, http.StatusNoContent, filler)
		tag := w.Send("GET", user, "").Header.Get("ETag")
		w.Send("GET", user, "", "If-None-Match: "+bomb, "If-None-Match: "+tag).Is(t, http.StatusNotModified, filler)
		w.SendTo("GET", "/docs/swagger-ui.css", "", "Accept-Encoding: "+bomb+",gzip").Is(t, http.StatusOK, filler)
		w.Send("POST", kit.AlicePing, "{}", "Content-Type: "+bomb).Is(t, http.StatusUnsupportedMediaType, filler)
	}
}

// TestRequestID checks that a valid request ID is returned, and that no other input becomes a header of the response.
func TestRequestID(t *testing.T) {
	w := apitest.NewLimitedServer(t)
	id := func(sent string) kit.Response {
		return w.Exchanges("GET /v1/nothing HTTP/1.1\r\nHost: lastseen\r\n" + sent)
	}
	require.Equal(t, []string{"one"}, id("X-Request-Id: one\r\nX-Request-Id: two\r\n").Header.Values("X-Request-Id"))
	made, another := id("").Header.Get("X-Request-Id"), id("").Header.Get("X-Request-Id")
	require.NotEqual(t, made, another)
	for _, bad := range []string{
		"a\r\n Set-Cookie: x", "a\r\n\tb", "a\tb", "a b", "\u00e9", "ü", "\xff\xfe", "a\u2028b", strings.Repeat("x",
			129),
		strings.Repeat("x", 80<<10), "",
	} {
		r := id("X-Request-Id: " + bad + "\r\n")
		require.Regexp(t, `^[0-9a-z]{1,13}$`, r.Header.Get("X-Request-Id"), "one of our own instead of %.40q", bad)
		require.Empty(t, r.Header.Get("Set-Cookie"))
		require.Less(t, len(r.Body), 1<<10)
	}
	for _, path := range []string{"/docs", "/docs?next=//evil", "//evil/docs", "/v1/namespaces/%0d%0aLocation:%20evil"} {
		r := w.Exchanges("GET " + path + " HTTP/1.1\r\nHost: evil\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: //evil\r\n")
		require.NotContains(t, fmt.Sprint(r.Header), "evil", path)
	}
}

// TestManyHeadersTakeNoMemory checks that a refused request releases its headers while the server waits for the rest
// of its body.
func TestManyHeadersTakeNoMemory(t *testing.T) {
	var headers strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&headers, "%x:\r\n", i)
	}
	withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
		const requests = 20
		var conns []net.Conn
		before := heap()
		for range requests {
			conn := dial()
			conns = append(conns, conn)
			_, err := fmt.Fprintf(conn,
				"POST /v1/namespaces/chat/lookup HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n", kit.MaxBody, headers.String())
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
	w := apitest.NewServer(t, kit.Panicking(kit.FileStore(t)))
	refusal := w.Fails(problem.Internal, "POST", "/chat/users/alice/ping", "")
	require.NotContains(t, refusal["detail"], "cause")
	require.Contains(t, w.Log.String(), "the cause")
	require.Contains(t, w.Log.String(), "apitest/kit/hooks.go", "the log has the stack")
}
