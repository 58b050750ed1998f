package api

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxRequestID is the maximum length of request IDs from clients in bytes.
const maxRequestID = 128

// begin gives every request an ID, which the response repeats: that of the client if it is valid, or a random one.
// While the server is draining, the response ends its connection; HTTP/2 has no such header, and package net/http sends
// GOAWAY instead. It also measures the request. Separate middlewares would cost two allocations each.
func (s *server) begin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !validRequestID(id) {
			id = strconv.FormatUint(rand.Uint64(), 36)
		}
		header := c.Response().Header()
		header.Set(echo.HeaderXRequestID, id)
		header[echo.HeaderXContentTypeOptions] = noSniff
		if s.Draining() {
			header.Set(echo.HeaderConnection, "close")
		}
		if s.metrics == nil {
			return next(c)
		}
		s.metrics.requests.measure(c, next)
		return nil
	}
}

func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkHeaders refuses requests with more than maxHeaderLines headers. Package net/http limits only their bytes, and
// many short headers slow down everything that reads headers.
func checkHeaders(request *http.Request) error {
	lines := 0
	for _, values := range request.Header {
		lines += len(values)
	}
	if lines <= maxHeaderLines {
		return nil
	}
	// The server waits for the rest of the body. Until then it keeps only the header that the log needs.
	request.Header = http.Header{echo.HeaderXForwardedFor: slices.Clone(request.Header[echo.HeaderXForwardedFor])}
	return errorf(codeTooManyHeaders, "The request has %d headers: send at most %d.", lines, maxHeaderLines)
}

// checkPath makes the router use the path as it was sent, so that %2F in a name is not a separator, and refuses empty
// segments. RawPath is the path as sent unless it is empty. EscapedPath would ignore it if it had a byte that should be
// encoded, such as a quote, and %2F would become a slash. checkPath also checks the headers.
func checkPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := checkHeaders(c.Request()); err != nil { // a separate middleware would cost an allocation
			return err
		}
		url := c.Request().URL
		if url.RawPath == "" {
			url.RawPath = url.EscapedPath()
		}
		if strings.Contains(url.RawPath, "//") && !strings.HasSuffix(url.RawPath, "/") {
			return emptySegment(url.RawPath)
		}
		return next(c)
	}
}

// emptySegment returns an error that names the missing part of the path.
func emptySegment(path string) error {
	segments := strings.Split(path, "/") // the first is empty, before the leading slash
	missing := func(i int) bool {
		return strings.HasPrefix(path, "/v1/namespaces/") && len(segments) > i && segments[i] == ""
	}
	calls := len(segments) > 4 && segments[4] == "calls"
	switch {
	case missing(3):
		return newError(codeInvalidNamespace, "The namespace in the path is empty.")
	case missing(5) && !calls:
		return newError(codeInvalidUser, "The user in the path is empty.")
	default:
		return newError(codeInvalidParameter, "The path has an empty segment.")
	}
}
