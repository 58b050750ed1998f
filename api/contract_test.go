package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// loadDocument reads the OpenAPI document once for all tests. Its objects are closed here: a field that
// is not documented is an error, though clients have to bear with new ones.
var loadDocument = sync.OnceValues(func() (*openapi3.T, error) {
	openapi3filter.RegisterBodyDecoder(mediaNDJSON, openapi3filter.PlainBodyDecoder)
	doc, err := openapi3.NewLoader().LoadFromData(lastseen.OpenAPI())
	if err != nil {
		return nil, err
	}
	closed := false
	for _, schema := range doc.Components.Schemas {
		schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &closed}
	}
	return doc, nil
})

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := loadDocument()
	require.NoError(t, err)
	return doc
}

// pages are the routes of the document itself and of what is for people's eyes: no operations of the
// interface.
func pages() (paths []string) {
	for _, r := range (&server{}).routes() {
		if r.path == "/" || strings.HasPrefix(r.path, "/docs") || strings.HasPrefix(r.path, "/openapi.") {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// contract checks every exchange with a server against the OpenAPI document, and remembers what the
// server answered.
type contract struct {
	t   *testing.T
	doc *openapi3.T

	open     sync.WaitGroup // exchanges; their clients may have the answer already
	mu       sync.Mutex
	answered map[string]bool // "operation status code", the code of an error only
}

// answers returns what the server answered.
func (c *contract) answers() map[string]bool {
	c.open.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answered)
}

func newContract(t *testing.T) *contract {
	t.Helper()
	return &contract{t: t, doc: document(t), answered: map[string]bool{}}
}

// exchange is a request and its answer.
type exchange struct {
	http.ResponseWriter
	request      *http.Request
	sent, answer bytes.Buffer
	status       int
}

// WriteHeader, Write and Unwrap are those of an [http.ResponseWriter].
func (e *exchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

func (e *exchange) Write(b []byte) (int, error) {
	e.answer.Write(b)
	return e.ResponseWriter.Write(b)
}

// unpack replaces a compressed answer by what is in it: that is what the document is about.
func (e *exchange) unpack() error {
	if e.Header().Get("Content-Encoding") != "gzip" || e.answer.Len() == 0 {
		return nil
	}
	plain, err := gunzip(e.answer.Bytes())
	e.answer = *bytes.NewBuffer(plain)
	return err
}

func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// check wraps a handler.
func (c *contract) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.open.Add(1)
		defer c.open.Done()
		e := &exchange{ResponseWriter: w, request: r.Clone(r.Context()), status: http.StatusOK}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &e.sent), r.Body}
		next.ServeHTTP(e, r)
		if err := errors.Join(e.unpack(), c.verify(e)); err != nil {
			c.t.Errorf("%s %.200s: %d %.300s\nis not what openapi.yaml says: %v", r.Method, e.request.URL, e.status, e.answer.String(), err)
		}
	})
}

// verify returns in what an exchange differs from the document.
func (c *contract) verify(e *exchange) error {
	path, _, _ := strings.Cut(e.request.RequestURI, "?") // as it was sent
	method := e.request.Method
	template, params := c.match(path)
	item := c.doc.Paths.Value(template)
	switch {
	case e.status == http.StatusRequestHeaderFieldsTooLarge:
		return c.general(e, e.status, "TooManyHeaders")
	case slices.Contains(pages(), path):
		return nil
	case isPreflight(e.request) && e.Header().Get("Vary") != "":
		return c.preflight(e)
	case strings.HasSuffix(path, "/"):
		return c.general(e, http.StatusNotFound, "NotFound")
	case strings.Contains(path, "//"):
		return c.general(e, http.StatusBadRequest, "EmptySegment")
	case item == nil:
		return c.general(e, http.StatusNotFound, "NotFound")
	case method == http.MethodOptions:
		return c.general(e, http.StatusNoContent, "Options")
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	operation := item.GetOperation(method)
	if operation == nil {
		return c.general(e, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
	route := &routers.Route{Spec: c.doc, Path: template, PathItem: item, Method: method, Operation: operation}
	return c.operation(e, route, params)
}

// preflight checks the answer to a browser that asks whether a script may call.
func (c *contract) preflight(e *exchange) error {
	if e.status != http.StatusNoContent || e.answer.Len() > 0 {
		return fmt.Errorf("a preflight is answered with %d and %d bytes", e.status, e.answer.Len())
	}
	return nil
}

// match finds the path of the document that a request is for, and its parameters.
func (c *contract) match(path string) (string, map[string]string) {
	segments := strings.Split(path, "/")
	for _, template := range c.doc.Paths.InMatchingOrder() {
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

// general checks an error that is no operation's: one of those that the document has for all.
func (c *contract) general(e *exchange, status int, name string) error {
	responses := openapi3.NewResponses(openapi3.WithStatus(status, c.doc.Components.Responses[name]))
	operation := &openapi3.Operation{OperationID: name, Responses: responses}
	return c.operation(e, &routers.Route{Spec: c.doc, Method: http.MethodGet, Operation: operation}, nil)
}

// operation checks an exchange with an operation: the answer always, and the request if it was accepted.
func (c *contract) operation(e *exchange, route *routers.Route, params map[string]string) error {
	id, response := route.Operation.OperationID, route.Operation.Responses.Status(e.status)
	if response == nil {
		return fmt.Errorf("%s has no status %d", id, e.status)
	}
	code, err := codeOf(e, response.Value)
	if err != nil {
		return fmt.Errorf("%s, %d: %w", id, e.status, err)
	}
	c.mu.Lock()
	c.answered[strings.TrimSpace(fmt.Sprintf("%s %d %s", id, e.status, code))] = true
	c.mu.Unlock()
	input := &openapi3filter.RequestValidationInput{
		Request: e.asDocumented(route.Method), PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}, // see TestWhoMayDoWhat
	}
	if e.status < http.StatusBadRequest && route.PathItem != nil {
		if err := openapi3filter.ValidateRequest(e.request.Context(), input); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	return e.checkAnswer(input, response)
}

// asDocumented returns the request with what the server takes out of kindness replaced by what the
// document asks for, in one form: HEAD is GET, and what is read as JSON is JSON.
func (e *exchange) asDocumented(method string) *http.Request {
	request := e.request.Clone(e.request.Context())
	request.Method, request.Body = method, io.NopCloser(&e.sent)
	contentType := request.Header.Get("Content-Type")
	if contentType == mediaNDJSON && e.sent.Len() == 0 {
		e.sent.WriteString("\n") // a stream without lines is a stream; the validator would say there is no body
	}
	if contentType == "" || strings.HasPrefix(contentType, "text/plain") || contentType == "application/x-www-form-urlencoded" {
		request.Header.Set("Content-Type", mediaJSON)
	}
	return request
}

// checkAnswer checks the headers and the body. The validator passes over 304, so it is told that every
// status is 200.
func (e *exchange) checkAnswer(input *openapi3filter.RequestValidationInput, response *openapi3.ResponseRef) error {
	route, operation := *input.Route, *input.Route.Operation
	operation.Responses = openapi3.NewResponses(openapi3.WithStatus(http.StatusOK, response))
	route.Operation, input.Route = &operation, &route
	if len(response.Value.Content) == 0 && e.answer.Len() > 0 {
		return errors.New("there is a body")
	}
	for name := range e.Header() {
		known := slices.Contains([]string{
			"Content-Type", "Content-Length", "Connection", "X-Content-Type-Options",
			"Vary", "Content-Encoding", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
		}, name)
		for documented := range response.Value.Headers {
			known = known || http.CanonicalHeaderKey(documented) == name
		}
		if !known {
			return fmt.Errorf("the header %s is not documented", name)
		}
	}
	return openapi3filter.ValidateResponse(e.request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: http.StatusOK, Header: e.Header(),
		Body:    io.NopCloser(bytes.NewReader(e.answer.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// codeOf returns the code of an error answer, which is one of those that are documented as its
// examples; none if it is no error.
func codeOf(e *exchange, response *openapi3.Response) (string, error) {
	if e.status < http.StatusBadRequest {
		return "", nil
	}
	var p problem
	if err := json.Unmarshal(e.answer.Bytes(), &p); err != nil {
		return "", err
	}
	if _, documented := response.Content["application/problem+json"].Examples[string(p.Code)]; !documented {
		return "", fmt.Errorf("the code %s is not documented", p.Code)
	}
	return string(p.Code), nil
}
