package kit

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// CallPath returns the path of a call in a response.
func CallPath(call map[string]any) string { return CallsPath + "/" + call["id"].(string) }

// Paths of requests.
const (
	AliceUser         = "/chat/users/alice"
	AlicePing         = "/chat/users/alice/ping"
	AliceAvailability = "/chat/users/alice/availability"
	AliceLookup       = "/chat/lookup?user=alice&user=zoe"
	CallsPath         = "/chat/calls"
)

// AddHeaders adds headers, which are "Name: value".
func AddHeaders(to http.Header, headers []string) {
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		to.Add(name, value)
	}
}

// Serve sends a request to a handler, without a network.
func Serve(handler http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(body)), httptest.NewRecorder()
	AddHeaders(r.Header, headers)
	handler.ServeHTTP(w, r)
	return w
}

// NDJSON is the header of a stream of JSON objects.
const NDJSON = "Content-Type: application/x-ndjson"

// AcceptEvents is the header of a request for a stream of events.
const AcceptEvents = "Accept: text/event-stream"

// CallsQuery returns the path of the next poll after a response.
func CallsQuery(user string, after map[string]any) string {
	return "/calls?user=" + user + "&wait=50s&cursor=" + url.QueryEscape(CursorOf(after))
}

// AppOf returns the content of a JSON string of n bytes, with its quotes.
func AppOf(n int) string { return strings.Repeat("x", n-2) }

// UpgradeHeaders are the headers of a request for a WebSocket, as requests of package net/http need them.
func UpgradeHeaders(more ...string) []string {
	return append([]string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
	}, more...)
}

// Forgeries returns variants of a cursor: with one bit changed, with a byte more or less, or encoded differently.
func Forgeries(cursor string) (forged []string) {
	for i := range len(cursor) {
		for bit := range 8 {
			forged = append(forged, cursor[:i]+string([]byte{cursor[i] ^ 1<<bit})+cursor[i+1:])
		}
		forged = append(forged, cursor[:i], cursor[i+1:], cursor[:i]+"A"+cursor[i:], cursor[:i]+"\n"+cursor[i:],
			cursor[:i]+"\r"+cursor[i:])
	}
	content, _ := base64.RawURLEncoding.DecodeString(cursor)
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			forged = append(forged, base64.RawURLEncoding.EncodeToString(content))
			content[i] ^= 1 << bit
		}
	}
	return append(forged, cursor+"A", cursor+"=", cursor+"==", cursor+"\n", " "+cursor, cursor+"\x00", cursor+cursor,
		strings.Repeat(cursor, 100), strings.ToUpper(cursor),
		base64.StdEncoding.EncodeToString(content), base64.RawURLEncoding.EncodeToString(append(content, 0)),
		fmt.Sprintf("%x", content))
}

// ForwardedFor returns the header with which a proxy forwards a client's address.
func ForwardedFor(address string) string { return "X-Forwarded-For: " + address }

// Upload is an upload of lines that continues until the test ends it.
type Upload struct {
	*io.PipeWriter
	Response chan Response
}

// Origins of pages.
const (
	AppOrigin   = "https://app.example.com"
	LocalOrigin = "http://localhost:3000"
)

// CrossSite returns the headers that browsers send with requests of pages of other sites.
func CrossSite(origin string) []string {
	return []string{"Origin: " + origin, "Sec-Fetch-Site: cross-site"}
}
