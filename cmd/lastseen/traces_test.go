package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// traceCollector receives traces by OTLP over HTTP.
type traceCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	raw   strings.Builder // what was received, as text
}

func startTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		var request collector.ExportTraceServiceRequest
		content, err := io.ReadAll(body)
		if err != nil || proto.Unmarshal(content, &request) != nil {
			http.Error(w, "invalid", http.StatusBadRequest)
			return
		}
		c.add(&request)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// startTraced starts a server that sends a trace of one of so many requests to a collector.
func startTraced(t *testing.T, c *traceCollector, sampling string, args ...string) *testserver.Server {
	t.Helper()
	options := []string{
		"--trace-endpoint", c.URL + "/v1/traces", "--trace-sampling", sampling,
		"--redis-timeout", "30s", "--redis-dial-timeout", "30s",
	}
	return testserver.Start(t, append(options, args...)...)
}

// tracedCall sends a request with a traceparent, and returns the status of its response.
func tracedCall(t *testing.T, method, url, traceparent string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	request.Header.Set("traceparent", traceparent)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func (c *traceCollector) add(request *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.WriteString(request.String())
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// named returns the spans whose name starts with a text, by ID.
func (c *traceCollector) named(prefix string) map[string]*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]*otlp.Span{}
	for _, span := range c.spans {
		if strings.HasPrefix(span.Name, prefix) {
			found[string(span.SpanId)] = span
		}
	}
	return found
}

// TestTraces: each ping's span leads to the span of the batch that carried it, and that to the command to Redis.
func TestTraces(t *testing.T) {
	c := startTraceCollector(t)
	s := startTraced(t, c, "1", "--store", redistest.Start(t))
	const pings = 40
	var calls sync.WaitGroup
	for range pings {
		calls.Go(func() { s.Post(t, "/v1/namespaces/secret-chat/users/secret-alice/ping", "") })
	}
	calls.Wait()
	require.Zero(t, s.Terminate(t)) // sends what is left

	const route = "POST /v1/namespaces/:namespace/users/:user/ping"
	requests, batches := c.named(route), c.named("batch ping")
	require.Len(t, requests, pings)
	carried := map[string]int{} // how often a batch names a request
	for _, batch := range batches {
		require.Contains(t, requests, string(batch.ParentSpanId))
		carried[string(batch.ParentSpanId)]++
		for _, link := range batch.Links {
			require.Contains(t, requests, string(link.SpanId))
			carried[string(link.SpanId)]++
			other := requests[string(link.SpanId)]
			require.Len(t, other.Links, 1)
			require.Equal(t, batch.SpanId, other.Links[0].SpanId, "the request leads to its batch, too")
		}
	}
	require.Len(t, carried, pings, "every request is in a batch")
	for id, times := range carried {
		require.Equal(t, 1, times, "request %x is in several batches", id)
	}
	commands := 0
	for _, span := range c.named("") {
		if batch := batches[string(span.ParentSpanId)]; batch != nil {
			require.Equal(t, batch.TraceId, span.TraceId)
			commands++
		}
	}
	require.GreaterOrEqual(t, commands, len(batches), "each batch made a round trip to Redis")
	require.NotContains(t, c.raw.String(), "secret", "traces name neither namespaces nor users")
	require.NotContains(t, c.raw.String(), "127.0.0.1:"+strings.Split(s.URL, ":")[2])
}

// TestTracesOfErrors: a batch that fails says why, without the namespace that the error names.
func TestTracesOfErrors(t *testing.T) {
	c := startTraceCollector(t)
	s := startTraced(t, c, "1", "--store", redistest.Start(t), "--max-namespaces", "1")
	s.Post(t, "/v1/namespaces/first/users/alice/ping", "")
	status, _ := s.Call(t, http.MethodPost, "/v1/namespaces/secret-chat/users/alice/ping", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Zero(t, s.Terminate(t))
	var failed []string
	for _, batch := range c.named("batch ping") {
		if batch.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			failed = append(failed, batch.Status.Message)
		}
	}
	require.Equal(t, []string{"full"}, failed)
	require.NotContains(t, c.raw.String(), "secret")
}

// TestTracesOfRequests: a span continues the client's trace, and has the route, the method and the status.
func TestTracesOfRequests(t *testing.T) {
	c := startTraceCollector(t)
	s := startTraced(t, c, "1")
	const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	status := tracedCall(t, http.MethodGet, s.URL+"/v1/namespaces/a/users/alice?green=x",
		"00-"+traceID+"-"+parent+"-00") // not sampled there: that is not up to clients
	require.Equal(t, http.StatusBadRequest, status)
	s.Get(t, "/healthz")
	s.Call(t, "TICKLE", "/v1/nothing/secret", "")
	require.Zero(t, s.Terminate(t))

	spans := c.named("")
	require.Len(t, spans, 2, "probes are not traced")
	for _, span := range c.named("GET ") {
		require.Equal(t, "GET /v1/namespaces/:namespace/users/:user", span.Name)
		require.Equal(t, traceID, hex.EncodeToString(span.TraceId))
		require.Equal(t, parent, hex.EncodeToString(span.ParentSpanId))
		values := map[string]string{}
		for _, attribute := range span.Attributes {
			values[attribute.Key] = attribute.Value.String()
		}
		require.Len(t, values, 3)
		require.Contains(t, values["http.route"], "/v1/namespaces/:namespace/users/:user")
		require.Contains(t, values["http.request.method"], "GET")
		require.Contains(t, values["http.response.status_code"], "400")
	}
	require.Len(t, c.named("_OTHER"), 1)
	require.NotContains(t, c.raw.String(), "secret")
}

// TestTracesWithoutCollector: requests do not wait for a collector that hangs or is down, and neither does the end.
func TestTracesWithoutCollector(t *testing.T) {
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(over) }) // first
	s := startTraced(t, &traceCollector{Server: silent}, "1")
	for range 5_000 { // more than the queue of spans
		s.Post(t, "/v1/namespaces/a/users/alice/ping", "")
	}
	require.Zero(t, s.Terminate(t)) // within 10 seconds
	require.Contains(t, s.Log.String(), "traces")
}

// TestTraceSampling: requests are recorded at random, whatever their traceparent says.
func TestTraceSampling(t *testing.T) {
	c := startTraceCollector(t)
	s := startTraced(t, c, "1000000")
	for range 100 {
		status := tracedCall(t, http.MethodPost, s.URL+alice+"/ping",
			"00-00000000000000000000000000000001-0000000000000001-01")
		require.Equal(t, http.StatusOK, status)
	}
	require.Zero(t, s.Terminate(t))
	require.LessOrEqual(t, len(c.named("")), 2) // all of 100 would be recorded if clients decided
}
