package kit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
)

// Contract checks every exchange with a server against the OpenAPI document, and records the kinds of response.
type Contract struct {
	t   *testing.T
	Doc *openapi3.T

	documented map[string]bool // see DocumentedResponses
	open       sync.WaitGroup  // exchanges; their clients may have the response already
	mu         sync.Mutex
	answered   map[string]bool // as documented
}

// Responses returns the kinds of response so far.
func (c *Contract) Responses() map[string]bool {
	c.open.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answered)
}

// NewContract returns a contract with the OpenAPI document.
func NewContract(t *testing.T) *Contract {
	doc := Document(t)
	return &Contract{t: t, Doc: doc, documented: DocumentedResponses(doc), answered: map[string]bool{}}
}

// exchange is a request and its response.
type exchange struct {
	http.ResponseWriter
	request       *http.Request
	sent, content bytes.Buffer
	status        int
}

// WriteHeader, Write and Unwrap are those of an [http.ResponseWriter].
func (e *exchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

func (e *exchange) Write(b []byte) (int, error) {
	e.content.Write(b)
	return e.ResponseWriter.Write(b)
}

// Hijack is that of an [http.Hijacker]. Package api takes connections over for WebSockets only.
func (e *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	e.status = http.StatusSwitchingProtocols
	return http.NewResponseController(e.ResponseWriter).Hijack()
}

// unpack replaces a compressed response by its content, which the document describes.
func (e *exchange) unpack() error {
	if e.Header().Get("Content-Encoding") != "gzip" || e.content.Len() == 0 {
		return nil
	}
	plain, err := Gunzip(e.content.Bytes())
	e.content = *bytes.NewBuffer(plain)
	return err
}

func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// Gunzip returns the content of a compressed response.
func Gunzip(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Check wraps a handler.
func (c *Contract) Check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.open.Add(1)
		defer c.open.Done()
		e := &exchange{ResponseWriter: w, request: r.Clone(r.Context()), status: http.StatusOK}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &e.sent), r.Body}
		next.ServeHTTP(e, r)
		if err := c.verify(e); err != nil {
			c.t.Errorf("%s %.200s: %d %.300s\nis not as in openapi.yaml: %v",
				r.Method, e.request.URL, e.status, e.content.String(), err)
		}
	})
}

// verify compares an exchange with the document.
func (c *Contract) verify(e *exchange) error {
	path, _, _ := strings.Cut(e.request.RequestURI, "?") // as it was sent
	method := e.request.Method
	template, params := c.Match(path)
	item := c.Doc.Paths.Value(template)
	switch {
	case e.status == http.StatusRequestHeaderFieldsTooLarge:
		return c.general(e, "TooManyHeaders")
	case IsPage(path):
		return nil
	case e.isPreflight() && e.Header().Get("Vary") != "":
		return c.preflight(e)
	case strings.Contains(path, "//") && !strings.HasSuffix(path, "/"):
		return c.general(e, "EmptySegment")
	case item == nil || strings.HasSuffix(path, "/"):
		return c.general(e, "NotFound")
	case method == "OPTIONS":
		return c.general(e, "Options")
	}
	if method == "HEAD" {
		method = "GET"
	}
	operation := item.GetOperation(method)
	if operation == nil {
		return c.general(e, "MethodNotAllowed")
	}
	route := &routers.Route{Spec: c.Doc, Path: template, PathItem: item, Method: method, Operation: operation}
	return c.operation(e, route, params)
}

// isPreflight reports whether a browser asks whether a script can send another request.
func (e *exchange) isPreflight() bool {
	header := e.request.Header
	return e.request.Method == http.MethodOptions && header.Get("Origin") != "" &&
		header.Get("Access-Control-Request-Method") != ""
}

// preflight checks the response to a CORS preflight.
func (c *Contract) preflight(e *exchange) error {
	if e.status == http.StatusNoContent && e.content.Len() == 0 {
		return nil
	}
	return fmt.Errorf("a preflight is answered with %d and %d bytes", e.status, e.content.Len())
}

// Match returns the path in the document that matches a request, and its parameters.
func (c *Contract) Match(path string) (string, map[string]string) {
	segments := strings.Split(path, "/")
	for _, template := range c.Doc.Paths.InMatchingOrder() {
		params, names := map[string]string{}, strings.Split(template, "/")
		same := len(names) == len(segments)
		for i := 0; same && i < len(names); i++ {
			if name, isParam := strings.CutPrefix(names[i], "{"); isParam {
				value, err := url.PathUnescape(segments[i])
				params[strings.TrimSuffix(name, "}")], same = value, err == nil
			} else {
				same = names[i] == segments[i]
			}
		}
		if same {
			return template, params
		}
	}
	return "", nil
}

// general checks a response that is not of an operation: the methods of a path, or an error.
func (c *Contract) general(e *exchange, name string) error {
	responses := openapi3.NewResponses(openapi3.WithName("default", openapi3.NewResponse().WithDescription(name)))
	if e.status >= http.StatusBadRequest {
		responses.Set("default", c.Doc.Components.Responses["Error"])
	}
	operation := &openapi3.Operation{OperationID: name, Responses: responses}
	return c.operation(e, &routers.Route{Spec: c.Doc, Method: "GET", Operation: operation}, nil)
}

// operation checks an exchange with an operation: the response always, and the request if it was accepted.
func (c *Contract) operation(e *exchange, route *routers.Route, params map[string]string) error {
	if err := e.unpack(); err != nil {
		return err
	}
	response := route.Operation.Responses.Status(e.status)
	if response == nil {
		response = route.Operation.Responses.Default()
	}
	kind, err := kindOf(e, route.Operation.OperationID)
	if err == nil && (response == nil || !c.documented[kind]) {
		err = errors.New("the status or the code is not documented")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	c.mu.Lock()
	c.answered[kind] = true
	c.mu.Unlock()
	input := &openapi3filter.RequestValidationInput{
		Request: e.asDocumented(route.Method), PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if e.status < http.StatusBadRequest && route.PathItem != nil {
		if err := openapi3filter.ValidateRequest(e.request.Context(), input); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	return e.checkResponse(input, response)
}

// unixSeconds matches a time or a duration that is a JSON number.
var unixSeconds = regexp.MustCompile(`"(at|for|until)":\s*(-?\d[\d.eE+-]*)`)

// asDocumented returns the request with what the server also accepts replaced by what the document asks for: HEAD by
// GET, a number of seconds by a string, other media types that are read as JSON by JSON.
func (e *exchange) asDocumented(method string) *http.Request {
	request := e.request.Clone(e.request.Context())
	request.Method = method
	contentType := request.Header.Get("Content-Type")
	body := unixSeconds.ReplaceAllString(e.sent.String(), `"$1":"$2"`)
	if contentType == "application/x-ndjson" && body == "" {
		body = "\n" // a stream without lines is a stream; the validator would say there is no body
	}
	request.Body = io.NopCloser(strings.NewReader(body))
	switch media, _, _ := strings.Cut(contentType, ";"); media {
	case "", "text/plain", "application/x-www-form-urlencoded":
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

// checkResponse checks the headers and the body. The validator ignores 304, so it gets every status as 200.
func (e *exchange) checkResponse(input *openapi3filter.RequestValidationInput, response *openapi3.ResponseRef) error {
	route, operation := *input.Route, *input.Route.Operation
	operation.Responses = openapi3.NewResponses(openapi3.WithStatus(http.StatusOK, response))
	route.Operation, input.Route = &operation, &route
	if len(response.Value.Content) == 0 && e.content.Len() > 0 {
		return errors.New("there is a body")
	}
	if err := e.checkHeaders(response.Value); err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(e.request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: http.StatusOK, Header: e.Header(),
		Body:    io.NopCloser(bytes.NewReader(e.content.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// checkHeaders checks that the response has the headers of its status, and otherwise only those that are documented.
func (e *exchange) checkHeaders(response *openapi3.Response) error {
	patterns := statusHeaders(e.status)
	if e.Header().Get("Content-Type") == transport.MediaType {
		patterns["Cache-Control"], patterns["X-Accel-Buffering"] = `^no-store, no-transform$`, `^no$`
	}
	for name := range response.Headers {
		if e.status < http.StatusBadRequest {
			patterns[http.CanonicalHeaderKey(name)] = ""
		}
	}
	if e.request.Method == "OPTIONS" && e.status == http.StatusNoContent {
		patterns["Allow"] = `^OPTIONS, `
		delete(patterns, "Cache-Control")
	}
	for name, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(e.Header().Get(name)) {
			return fmt.Errorf("the header %s is %q", name, e.Header().Get(name))
		}
	}
	for name := range e.Header() {
		if _, known := patterns[name]; !known && !slices.Contains([]string{
			"Content-Type", "Content-Length", "Connection", "X-Content-Type-Options",
			"Vary", "Content-Encoding", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
		}, name) {
			return fmt.Errorf("the header %s is not documented", name)
		}
	}
	return nil
}

// statusHeaders returns the headers of all responses with a status, with patterns of their values.
func statusHeaders(status int) map[string]string {
	headers := map[string]string{"X-Request-Id": `^[!-~]+$`, "Cache-Control": `^no-store$`}
	switch status {
	case http.StatusUnauthorized:
		headers["Www-Authenticate"] = `^Bearer realm="lastseen"`
	case http.StatusForbidden:
		headers["Www-Authenticate"] = `^(Bearer realm="lastseen".*)?$` // only if other credentials can help
	case http.StatusMethodNotAllowed:
		headers["Allow"] = `^OPTIONS, `
	case http.StatusTooManyRequests:
		headers["Ratelimit"] = `^("(address|key|user)";r=0;t=[1-9][0-9]*)?$` // only if it is about a rate
		headers["Ratelimit-Policy"] = `^("(address|key|user)";q=[1-9][0-9]*;w=5)?$`
		headers["Retry-After"] = `^[1-9][0-9]*$`
	case http.StatusUpgradeRequired:
		headers["Upgrade"], headers["Sec-Websocket-Version"] = `^websocket$`, `^13$`
	case http.StatusServiceUnavailable:
		headers["Retry-After"] = `^[1-9][0-9]*$`
	}
	return headers
}

// kindOf returns the kind of a response as [DocumentedResponses] lists it. The code is that in the body of an error.
func kindOf(e *exchange, operation string) (string, error) {
	kind := fmt.Sprintf("%s %d", operation, e.status)
	if e.status < http.StatusBadRequest {
		return kind, nil
	}
	var p struct{ Code problem.Code }
	err := json.Unmarshal(e.content.Bytes(), &p, json.MatchCaseInsensitiveNames(true))
	return kind + " " + string(p.Code), err
}
