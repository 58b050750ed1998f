package request

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

// Values of headers. Sharing them saves an allocation each. They must not be modified.
var (
	typeJSON    = []string{JSON}
	typeProblem = []string{"application/problem+json"}
	gzipped     = []string{"gzip"}
	minimalDone = []string{"return=minimal"}
)

// Respond sends JSON with status 200.
func Respond(c echo.Context, body any) error { return WriteJSON(c, http.StatusOK, body) }

// RespondMinimal sends a response without a body, as the client prefers. It says when to ping next, unless that is 0.
func RespondMinimal(c echo.Context, pingAfter int64) error {
	header := c.Response().Header()
	header["Preference-Applied"] = minimalDone
	if pingAfter > 0 {
		header.Set(PingAfterHeader, strconv.FormatInt(pingAfter, 10))
	}
	return c.NoContent(http.StatusNoContent)
}

// buffers are reused to encode responses.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the size in bytes up to which a buffer is reused.
const maxBuffer = 64 << 10

// WriteJSON sends JSON, compressed if it is large and the client accepts that. With the status of an error, it is a
// problem. WriteJSON encodes everything before it sends anything, so that an error can still be sent instead.
func WriteJSON(c echo.Context, status int, body any) error {
	buffer := Buffer()
	encoded, err := appendJSON((*buffer)[:0], body)
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	defer PutBuffer(buffer, encoded)
	header := c.Response().Header()
	header[echo.HeaderContentType] = typeJSON
	if status >= http.StatusBadRequest {
		header[echo.HeaderContentType] = typeProblem
	}
	if len(encoded) <= minGzip {
		return Send(c, status, encoded)
	}
	header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding) // also without compression, for caches
	if !AcceptsGzip(c.Request().Header[echo.HeaderAcceptEncoding]) {
		return Send(c, status, encoded)
	}
	header[echo.HeaderContentEncoding] = gzipped
	second := Buffer()
	compressed := appendGzip((*second)[:0], encoded)
	defer PutBuffer(second, compressed)
	return Send(c, status, compressed)
}

// Buffer returns memory that is reused; see [PutBuffer].
func Buffer() *[]byte { return buffers.Get().(*[]byte) }

// PutBuffer has a buffer reused, with the memory of the content that it grew to.
func PutBuffer(buffer *[]byte, content []byte) {
	if *buffer = content; len(content) <= maxBuffer {
		buffers.Put(buffer)
	}
}

// Send sends a response.
func Send(c echo.Context, status int, content []byte) error {
	response := c.Response()
	if len(content) > autoLength || c.Get(flushesResponse) != nil {
		response.Header().Set(echo.HeaderContentLength, strconv.Itoa(len(content)))
	}
	response.WriteHeader(status)
	if _, err := response.Write(content); err != nil {
		return fmt.Errorf("%w: %w", problem.ErrNotSent, err)
	}
	return nil
}

// autoLength is the size in bytes up to which package net/http sets the length of a response itself, unless it is
// flushed.
const autoLength = 2048

// flushesResponse is the key of a value in the context of a request whose response is flushed.
const flushesResponse = "flushes response"

// AfterResponse calls a function once after the response to a request was handed to the network, also if that failed.
// It has to be called before the response is sent.
func AfterResponse(c echo.Context, do func()) {
	do = sync.OnceFunc(do)
	c.Set(flushesResponse, true)
	c.Response().After(func() {
		_ = http.NewResponseController(c.Response().Writer).Flush() // the client may be gone
		do()
	})
}

// appendJSON encodes a body. One that is sent often or holds many users does so itself, without reflection. This takes
// an eighth of the time (see BenchmarkEncode of package api).
func appendJSON(b []byte, body any) ([]byte, error) {
	if a, ok := body.(interface{ AppendJSON([]byte) []byte }); ok {
		return a.AppendJSON(b), nil
	}
	encoded, err := json.Marshal(body)
	return append(b, encoded...), err
}

// minGzip is the size in bytes above which a response is compressed. A smaller one fits into one packet.
const minGzip = 1 << 10

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
