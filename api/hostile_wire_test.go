package api

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests in hostile_*_test.go attack a server with the limits of a real one over real connections, mostly in
// ways that no HTTP library lends itself to.

// exchange sends bytes as they are and returns all answers, up to the end of the connection. The server may end
// it before it has read everything.
func (w *world) exchange(raw string) (answers []reply) {
	w.t.Helper()
	conn := w.dial()
	go io.WriteString(conn, raw)
	from := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return answers
		}
		body, _ := io.ReadAll(response.Body) // what of it there is
		response.Body.Close()
		if response.StatusCode != http.StatusContinue {
			answers = append(answers, reply{response.StatusCode, response.Header, string(body)})
		}
	}
}

// The beginning of a ping of alice, without the end of its header, and a whole ping of mallory: the last request
// on its connection.
const (
	pingStart = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: lastseen\r\n"
	smuggled  = "POST /v1/namespaces/chat/users/mallory/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// TestSmuggling sends requests whose end different readers see at different places, with another request behind
// them. Where the end is doubtful, the other one is not read.
func TestSmuggling(t *testing.T) {
	const chunked, keepAlive = "Transfer-Encoding: chunked\r\n", "Connection: keep-alive\r\n"
	http10 := strings.Replace(pingStart, "1.1", "1.0", 1) + keepAlive
	w := newLimitedWorld(t)
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
		answers := w.exchange(c.raw + smuggled)
		require.Len(t, answers, 1, c.name)
		require.Equal(t, c.status, answers[0].status, "%s: %s", c.name, answers[0].body)
		require.Nil(t, w.get("/chat/users/mallory")["last_seen"], "%s: another request was smuggled in", c.name)
	}
	require.Len(t, w.exchange(pingStart+"Content-Length: 2\r\n\r\n{}"+smuggled), 2, "two good requests are two")
	require.NotNil(t, w.get("/chat/users/mallory")["last_seen"])
}

// TestStrangeRequests sends what is hardly HTTP. Every answer is one of those expected, and none tells more than
// that to another path.
func TestStrangeRequests(t *testing.T) {
	const host = "Host: lastseen\r\n"
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + host + strings.Join(headers, "") + "Connection: close\r\n\r\n"
	}
	method := func(name, target string) string { return name + strings.TrimPrefix(get(target), "GET") }
	user := "/v1/namespaces/chat/users/"
	w := newLimitedWorld(t)
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
		answers := w.exchange(c.raw)
		require.Len(t, answers, 1, c.name)
		require.Equal(t, c.status, answers[0].status, "%s: %s", c.name, answers[0].body)
		require.Less(t, len(answers[0].body), 2<<10, "%s: %s", c.name, answers[0].body)
	}
	require.Zero(t, w.total("chat"))
}

// TestPathTricks: a path is decoded once, by nobody but the handler, and leads to a route or to nothing; there is
// no file that it could lead to.
func TestPathTricks(t *testing.T) {
	const namespaces, user = "/v1/namespaces/", "/v1/namespaces/chat/users/"
	w := newLimitedWorld(t)
	for path, want := range map[string]string{
		// Namespaces hold no percent sign, so that nothing is left to be decoded twice.
		namespaces + "..":                        "invalid_namespace",
		namespaces + "%2e%2e/counts":             "invalid_namespace",
		namespaces + "%252e%252e/counts":         "invalid_namespace",
		namespaces + "chat%00/counts":            "invalid_namespace",
		namespaces + "chat%2500/counts":          "invalid_namespace",
		namespaces + "chat%0d%0aX:y/counts":      "invalid_namespace",
		namespaces + "chat%2fcounts":             "invalid_namespace",
		namespaces + "chat%2f..%2fchat/counts":   "invalid_namespace",
		namespaces + "chat%5c..%5cchat/counts":   "invalid_namespace",
		namespaces + "chat;x=y/counts":           "invalid_namespace",
		namespaces + "%c0%ae%c0%ae/counts":       "invalid_namespace",
		namespaces + "%ef%bc%8e%ef%bc%8e/counts": "invalid_namespace",
		namespaces + "presence%3achat/counts":    "invalid_namespace",
		// Users may hold nearly everything, which is not taken for anything else.
		user + "..":                             "invalid_user",
		user + "%2e%2e":                         "invalid_user",
		user + ".%2e":                           "invalid_user",
		user + "%00":                            "invalid_user",
		user + "a%00b":                          "invalid_user",
		user + "a%0d%0aX-Evil:%20y":             "invalid_user",
		user + "%c0%af":                         "invalid_user",
		user + "%e0%80%af":                      "invalid_user",
		user + "%ed%a0%80":                      "invalid_user",
		user + "%f4%90%80%80":                   "invalid_user",
		user + strings.Repeat("%41", 257):       "invalid_user",
		user + "%252e%252e":                     "%2e%2e",
		user + "%2500":                          "%00",
		user + "%25252e":                        "%252e",
		user + "..%2f..%2f..%2fetc%2fpasswd":    "../../../etc/passwd",
		user + "..%5c..%5cwindows":              `..\..\windows`,
		user + "..;":                            "..;",
		user + "%ef%bc%8e%ef%bc%8e":             "．．",
		user + "$%7bjndi:x%7d":                  "${jndi:x}",
		user + "%3Cscript%3E":                   "<script>",
		user + "bob+eve":                        "bob+eve",
		user + "%e2%80%ae":                      "\u202e",
		"/v1/namespaces/chat/users/../counts":   "not_found",
		"/v1/../v1/namespaces":                  "not_found",
		"/v1/./namespaces":                      "not_found",
		"/./v1/namespaces":                      "not_found",
		"/V1/namespaces":                        "not_found",
		"/v1%2fnamespaces":                      "not_found",
		"/%76%31/namespaces":                    "not_found",
		"/healthz/..;/v1/namespaces":            "not_found",
		"/healthz%00":                           "not_found",
		"/docs/..%2f..%2fgo.mod":                "not_found",
		"/docs/..%5c..%5cgo.mod":                "not_found",
		"/docs/%2e%2e/%2e%2e/etc/passwd":        "not_found",
		"/docs/../openapi.yaml":                 "not_found",
		"/docs/docs.html":                       "not_found",
		"/docs//":                               "not_found",
		"/.git/config":                          "not_found",
		"/lastseen.db":                          "not_found",
		"/debug/pprof/":                         "not_found",
		"/v1/namespaces//users":                 "invalid_namespace",
		"/v1/namespaces/chat/users//ping":       "invalid_user",
		"/v1//namespaces/chat/users/alice/ping": "invalid_parameter",
	} {
		answers := w.exchange("GET " + path + " HTTP/1.1\r\nHost: lastseen\r\nConnection: close\r\n\r\n")
		require.Len(t, answers, 1, path)
		object := answers[0].json(t)
		if answers[0].status == http.StatusOK {
			require.Equal(t, want, object["user"], path)
		} else {
			require.Equal(t, want, object["code"], "%s: %s", path, answers[0].body)
		}
	}
}

// TestHeaderInjection: nothing that a caller sends becomes a header of the answer, except for a sensible request ID.
func TestHeaderInjection(t *testing.T) {
	w := newLimitedWorld(t)
	for _, id := range []string{
		"a\r\n Set-Cookie: x", "a\r\n\tb", "a\tb", "a b", "\u00e9", "\xff\xfe", "a\u2028b", strings.Repeat("x", 129),
		strings.Repeat("x", 80<<10), "",
	} {
		answers := w.exchange("GET /v1/nothing HTTP/1.1\r\nHost: lastseen\r\nX-Request-Id: " + id +
			"\r\nConnection: close\r\n\r\n")
		require.Len(t, answers, 1, "%.40q", id)
		require.Regexp(t, `^[0-9a-z]{1,13}$`, answers[0].header.Get("X-Request-Id"), "one of our own instead of %.40q",
			id)
		require.Empty(t, answers[0].header.Get("Set-Cookie"))
		require.Less(t, len(answers[0].body), 1<<10)
	}
	first := w.exchange("GET /healthz HTTP/1.1\r\nHost: a\r\nX-Request-Id: one\r\nX-Request-Id: two\r\nConnection: close\r\n\r\n")[0]
	require.Equal(t, []string{"one"}, first.header.Values("X-Request-Id"))
	for _, path := range []string{
		"/docs", "/docs?next=//evil", "//evil/docs",
		"/v1/namespaces/%0d%0aLocation:%20evil",
	} {
		for _, a := range w.exchange("GET " + path +
			" HTTP/1.1\r\nHost: evil\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: //evil\r\nConnection: close\r\n\r\n") {
			require.NotContains(t, fmt.Sprint(a.header), "evil", path)
		}
	}
}

// TestHeaderBombs: headers that hold lists hold long ones, and the last entry counts as much as the first.
func TestHeaderBombs(t *testing.T) {
	w := newLimitedWorld(t)
	for _, filler := range []string{
		",", " ,\t", "x,", `W/"x",`, "*/*,", "a;b=c,", ";,", "=,", `"`, `\",`, "return=,",
		"gzip;q=,",
	} {
		bomb := strings.Repeat(filler, (80<<10)/len(filler))
		ping := w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+bomb,
			"Prefer: "+bomb[:1000]+",return=minimal")
		require.Equal(t, http.StatusNoContent, ping.status, filler)
		tag := w.send(http.MethodGet, "/chat/users/alice?as_of=100000", "").header.Get("ETag")
		tagged := w.send(http.MethodGet, "/chat/users/alice?as_of=100000", "", "If-None-Match: "+bomb,
			"If-None-Match: "+tag)
		require.Equal(t, http.StatusNotModified, tagged.status, filler)
		page := w.sendTo(http.MethodGet, "/docs/swagger-ui.css", "", "Accept-Encoding: "+bomb+",gzip")
		require.Equal(t, http.StatusOK, page.status, filler)
		require.Equal(t, http.StatusUnsupportedMediaType,
			w.send(http.MethodPost, "/chat/users/alice/ping", "{}", "Content-Type: "+bomb).status, filler)
	}
}

// TestQueryBombs: a query is read or refused as a whole, and no more of it is shown than helps.
func TestQueryBombs(t *testing.T) {
	w := newLimitedWorld(t)
	few := func(s string) string { return strings.Repeat(s, 9_000) } // package net/url takes 10,000 apart
	repeat := func(s string) string { return strings.Repeat(s, (80<<10)/len(s)) }
	for query, want := range map[string]code{
		few("user=u&"):                     codeTooManyItems,
		repeat("user=u&"):                  codeInvalidParameter,
		few("user=&"):                      codeTooManyItems,
		repeat("&"):                        codeInvalidParameter, // no user at all
		few("a&") + "a":                    codeUnknownParameter,
		few("%61=%62&"):                    codeUnknownParameter,
		few("green=1s&"):                   codeInvalidParameter,
		"user=a&as_of=" + repeat("9"):      codeInvalidTime,
		"user=a&as_of=1e" + repeat("9"):    codeInvalidTime,
		"user=a&as_of=2026-" + repeat("0"): codeInvalidTime,
		"user=a&green=" + repeat("9h"):     codeInvalidDuration,
		"user=a&green=" + repeat("9"):      codeInvalidDuration,
		"user=" + repeat("u"):              codeInvalidUser,
		"user=" + repeat("%00"):            codeInvalidUser,
		"user=" + repeat("%ff"):            codeInvalidUser,
		few("=&"):                          codeUnknownParameter,
		repeat(";"):                        codeInvalidParameter,
		repeat("%"):                        codeInvalidParameter,
		"user=a&" + repeat("%00"):          codeUnknownParameter,
	} {
		r := w.send(http.MethodGet, "/chat/lookup?"+query, "")
		require.Equal(t, string(want), r.json(t)["code"], "%.40s: %s", query, r.body)
		require.Less(t, len(r.body), 8<<10, "%.40s", query)
	}
}
