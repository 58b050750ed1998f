package testserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Operations returns all methods and paths that the server's OpenAPI document describes, sorted.
func (s *Server) Operations(t *testing.T) (all []string) {
	t.Helper()
	for path, methods := range s.Get(t, "/openapi.json")["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	require.NotEmpty(t, all)
	slices.Sort(all)
	return all
}

// Metrics returns what the server exports to Prometheus.
func (s *Server) Metrics(t testing.TB) string {
	t.Helper()
	_, _, text := (&Server{URL: s.Admin}).Ask(t, http.MethodGet, "/metrics", "")
	return text
}

// Ask sends a request with some headers, "Name: value", and returns what it is sent.
func (s *Server) Ask(
	t testing.TB, method, path, body string, headers ...string,
) (status int, header http.Header, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(content)
}

// Call sends a request and returns the status and the body as JSON.
func (s *Server) Call(t testing.TB, method, path, body string) (int, map[string]any) {
	t.Helper()
	status, _, text := s.Ask(t, method, path, body)
	var answer map[string]any
	if text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	}
	return status, answer
}

// Get is [Server.Call] for a GET that has to succeed.
func (s *Server) Get(t testing.TB, path string) map[string]any {
	t.Helper()
	status, answer := s.Call(t, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%v", answer)
	return answer
}

// Post is [Server.Call] for a POST that has to succeed.
func (s *Server) Post(t testing.TB, path, body string) map[string]any {
	t.Helper()
	status, answer := s.Call(t, http.MethodPost, path, body)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	return answer
}

// Alice is the path of a user.
const Alice = "/v1/namespaces/chat/users/alice"

// InWords returns what an app shows of a presence, such as "green busy", "left" or "never seen".
func InWords(presence map[string]any) string {
	words := []string{presence["status"].(string)}
	switch {
	case presence["last_seen"] == nil:
		words[0] = "never seen"
	case presence["left"] == true:
		words[0] = "left"
	}
	for _, field := range []string{"availability", "note", "activity"} {
		if word, ok := presence[field].(string); ok {
			words = append(words, word)
		}
	}
	if presence["in_call"] == true {
		words = append(words, "in a call")
	}
	return strings.Join(words, " ")
}

// Succeed is [Server.Call] for a request that has to succeed.
func (s *Server) Succeed(t *testing.T, method, path, body string) map[string]any {
	t.Helper()
	status, answer := s.Call(t, method, path, body)
	require.Less(t, status, http.StatusMultipleChoices, "%s %s: %v", method, path, answer)
	return answer
}
