package kit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// ReadResponse reads the final response from a connection.
func ReadResponse(t *testing.T, conn net.Conn) Response {
	t.Helper()
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil) //nolint:bodyclose // ResponseOf does it
	require.NoError(t, err)
	if response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(from, nil) //nolint:bodyclose // ResponseOf does it
		require.NoError(t, err)
	}
	return ResponseOf(t, response)
}

// CursorOf returns the cursor in a response.
func CursorOf(response map[string]any) string { return response["cursor"].(string) }

// Statuses returns the users in a response with their statuses, such as "alice green".
func Statuses(response map[string]any) []string {
	found := []string{}
	for _, u := range response["users"].([]any) {
		u := u.(map[string]any)
		found = append(found, u["user"].(string)+" "+u["status"].(string))
	}
	return found
}

// Response is a response with its complete body.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// JSON returns the body as an object.
func (r Response) JSON(t testing.TB) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.Body), &object), "%d %s", r.Status, r.Body)
	return object
}

// Is checks the status.
func (r Response) Is(t testing.TB, status int, why ...any) Response {
	t.Helper()
	require.Equal(t, status, r.Status, "%s: %s", fmt.Sprint(why...), r.Body)
	return r
}

// ResponseOf reads the body of a response.
func ResponseOf(t testing.TB, response *http.Response) Response {
	t.Helper()
	r, err := TryResponseOf(response)
	require.NoError(t, err)
	return r
}

// TryResponseOf is [ResponseOf] for goroutines that cannot end the test.
func TryResponseOf(response *http.Response) (Response, error) {
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return Response{response.StatusCode, response.Header, string(content)}, err
}

// Names returns the users in a response.
func Names(response map[string]any) []string { return Each(response, "users", "user") }

// Each returns a member of each object in a list.
func Each(response map[string]any, list, member string) []string {
	found := []string{}
	for _, entry := range response[list].([]any) {
		found = append(found, entry.(map[string]any)[member].(string))
	}
	return found
}

// FirstOf returns the first object in a list.
func FirstOf(response map[string]any, list string) map[string]any {
	return response[list].([]any)[0].(map[string]any)
}

// Sink is a response writer that discards the response.
type Sink struct {
	Headers http.Header
	Status  int
}

func (s *Sink) Header() http.Header { return s.Headers }

func (s *Sink) Write(p []byte) (int, error) { return len(p), nil }

func (s *Sink) WriteHeader(status int) { s.Status = status }
