package api

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
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
		return fmt.Errorf("%w: %w", errNotSent, err)
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
