package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/telemetry"
)

// Values of headers that are the same in many responses. Sharing them saves an allocation each. They must not be
// modified.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{mediaJSON}
	typeProblem = []string{"application/problem+json"}
	minimalDone = []string{"return=minimal"}
	gzipped     = []string{"gzip"}
)

// respond sends JSON with status 200.
func respond(c echo.Context, body any) error {
	return writeJSON(c, http.StatusOK, typeJSON, body)
}

// buffers are reused to encode responses.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the size in bytes up to which a buffer is reused.
const maxBuffer = 64 << 10

// writeJSON sends JSON, compressed if it is large and the client accepts that. It encodes everything before it sends
// anything, so that an error can still be sent instead.
func writeJSON(c echo.Context, status int, contentType []string, body any) error {
	buffer := buffers.Get().(*[]byte)
	encoded, err := appendJSON((*buffer)[:0], body)
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	defer putBuffer(buffer, encoded)
	header := c.Response().Header()
	header[echo.HeaderContentType] = contentType
	if len(encoded) <= minGzip {
		return send(c, status, encoded)
	}
	varyByEncoding(header)
	if !acceptsGzip(c.Request().Header[echo.HeaderAcceptEncoding]) {
		return send(c, status, encoded)
	}
	header[echo.HeaderContentEncoding] = gzipped
	second := buffers.Get().(*[]byte)
	compressed := appendGzip((*second)[:0], encoded)
	defer putBuffer(second, compressed)
	return send(c, status, compressed)
}

// putBuffer returns a buffer to the pool, with the memory of the content that it grew to.
func putBuffer(buffer *[]byte, content []byte) {
	if *buffer = content; len(content) <= maxBuffer {
		buffers.Put(buffer)
	}
}

// send sends a response.
func send(c echo.Context, status int, content []byte) error {
	response := c.Response()
	if len(content) > autoLength || c.Get(flushesResponse) != nil {
		response.Header().Set(echo.HeaderContentLength, strconv.Itoa(len(content)))
	}
	response.WriteHeader(status)
	if _, err := response.Write(content); err != nil {
		return fmt.Errorf("%w: %w", telemetry.ErrNotSent, err)
	}
	return nil
}

// autoLength is the size in bytes up to which package net/http sets the length of a response itself, unless it is
// flushed.
const autoLength = 2048

// flushesResponse is the key of a value in the context of a request whose response is flushed.
const flushesResponse = "flushes response"

// afterResponse calls a function once after the response to a request was handed to the network, also if that failed.
// It has to be called before the response is sent.
func afterResponse(c echo.Context, do func()) {
	do = sync.OnceFunc(do)
	c.Set(flushesResponse, true)
	c.Response().After(func() {
		_ = http.NewResponseController(c.Response().Writer).Flush() // the client may be gone
		do()
	})
}

// appender is a response that encodes itself without reflection, because it is sent often or holds many users. This
// takes an eighth of the time (see BenchmarkEncode).
type appender interface {
	appendJSON(b []byte) []byte
}

func appendJSON(b []byte, body any) ([]byte, error) {
	if a, ok := body.(appender); ok {
		return a.appendJSON(b), nil
	}
	encoded, err := json.Marshal(body)
	return append(b, encoded...), err
}

// appendString appends a JSON string. Names are valid UTF-8.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // fails for invalid UTF-8 only
	return b
}

// maxMaxAge is the longest time that a cache may keep a response about users, in milliseconds. A ping or a leave can
// change it at any time.
const maxMaxAge = 5000

// respondCached sends JSON about users, or 304: see [cached]. The ETag is weak: it is the same for responses that
// differ only in the time of the request or in their encoding.
func respondCached(c echo.Context, body any, v view, users ...presence) error {
	if !cached(c, etagOf(v.evaluated(), users), v.maxAge(users)) {
		return respond(c, body)
	}
	if len(users) > 1 { // as in the response that this replaces, if that is large
		varyByEncoding(c.Response().Header())
	}
	return c.NoContent(http.StatusNotModified)
}

// cached sets the headers by which caches may keep a response about users for a time in milliseconds, and reports
// whether the client has the response already, by its ETag. It then gets status 304 and no body. Responses to
// authenticated callers are private.
func cached(c echo.Context, tag string, age int64) bool {
	header := c.Response().Header()
	header.Set("ETag", "W/"+tag)
	policy := "max-age=" + strconv.FormatInt(age/1000, 10)
	if caller := callerOf(c); caller != nil {
		header.Add(echo.HeaderVary, echo.HeaderAuthorization)
		if !caller.IsAnonymous() {
			policy = "private, " + policy
		}
	}
	header.Set(echo.HeaderCacheControl, policy)
	return etagMatches(c.Request().Header.Values("If-None-Match"), tag)
}

// maxAge returns how long a response about users may be kept, in milliseconds: until the first of their statuses
// decays, or of their availabilities or calls ends, at most for [maxMaxAge].
func (v view) maxAge(users []presence) int64 {
	age := int64(maxMaxAge)
	for _, u := range users {
		if u.ValidUntil != 0 {
			age = min(age, int64(u.ValidUntil)-int64(v.asOf))
		}
		if u.userDetails == nil {
			continue
		}
		for _, end := range []lastseen.Instant{lastseen.Instant(u.AvailabilityUntil), u.inCallUntil} {
			if end != 0 {
				age = min(age, int64(end)-int64(v.now))
			}
		}
	}
	return age
}

// etagOf returns a hash, in quotes, of a response about users without its time of evaluation. It is the same on every
// server with the same thresholds.
func etagOf(e evaluated, users []presence) string {
	content := make([]byte, 0, 64)
	content = binary.BigEndian.AppendUint64(content, uint64(e.GreenMs))
	content = binary.BigEndian.AppendUint64(content, uint64(e.YellowMs))
	for _, u := range users {
		content = append(append(content, u.User...), 0) // user IDs contain no such byte
		content = strconv.AppendBool(append(content, u.Status...), u.Left)
		content = binary.BigEndian.AppendUint64(content, uint64(u.LastSeen))
		content = binary.BigEndian.AppendUint64(content, uint64(u.ValidUntil))
		if u.userDetails != nil {
			content = append(u.userDetails.appendFields(append(content, 1)), 0) // nor do user IDs begin with byte 1
		}
	}
	return hashTag(content)
}

// hashTag returns a hash of a content, in quotes.
func hashTag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// etagMatches reports whether one of the If-None-Match headers is a star or lists the ETag: see RFC 9110, section
// 13.1.2. Our ETags contain no comma.
func etagMatches(headers []string, tag string) bool {
	for _, header := range headers {
		for listed := range strings.SplitSeq(header, ",") {
			listed = strings.TrimSpace(listed)
			if listed == "*" || strings.TrimPrefix(listed, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// minGzip is the size in bytes above which a response is compressed. A smaller one fits into one packet.
const minGzip = 1 << 10

// varyByEncoding adds the header that says that a response depends on Accept-Encoding. It belongs to responses without
// compression, too, or a cache would use them for all clients.
func varyByEncoding(header http.Header) { header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding) }

// acceptsGzip reports whether the Accept-Encoding headers of a request accept gzip and do not prefer identity: see RFC
// 9110, section 12.5.3. It ignores malformed items.
func acceptsGzip(headers []string) bool {
	gzip, identity, others := -1, -1, -1 // weights in thousandths; -1 if not named
	for _, header := range headers {
		for coding := range strings.SplitSeq(header, ",") {
			name, parameter, _ := strings.Cut(coding, ";")
			q, ok := weight(parameter)
			if !ok {
				continue
			}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
				gzip = max(gzip, q)
			case strings.EqualFold(name, "identity"):
				identity = max(identity, q)
			case name == "*":
				others = max(others, q)
			}
		}
	}
	if gzip < 0 {
		gzip = others
	}
	return gzip > 0 && gzip >= identity
}

// weight parses a parameter such as q=0.5 and returns the weight in thousandths; 1000 if the parameter is empty.
func weight(parameter string) (int, bool) {
	parameter = strings.TrimSpace(parameter)
	if parameter == "" {
		return 1000, true
	}
	name, value, _ := strings.Cut(parameter, "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !strings.EqualFold(strings.TrimSpace(name), "q") || err != nil || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return int(q * 1000), true
}

// compressors compress responses, at the lowest level: it takes a fraction of the time of the default, and what
// compresses well does so at any level. A compressor takes 1 MB of memory, so only as many run as there are processors.
// Others wait, for about a millisecond.
//
// Compressing a secret together with text that an attacker chooses would reveal the secret by its length (BREACH).
// Responses contain no secrets: they never repeat credentials.
var (
	compressors = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
		return w
	}}
	running = make(chan struct{}, runtime.GOMAXPROCS(0))
)

// appendGzip appends compressed content to a buffer.
func appendGzip(buffer, content []byte) []byte {
	running <- struct{}{}
	defer func() { <-running }()
	into := bytes.NewBuffer(buffer)
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(into)
	_, _ = w.Write(content) // into memory, which does not fail
	_ = w.Close()
	return into.Bytes()
}
