package kit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// permittedRequest is a valid request to a route and the callers that may send it.
type permittedRequest struct {
	Query, Body string
	Allowed     []string
}

// PermissionsByRoute lists the permissions a second time, independently of the table of routes.
func PermissionsByRoute() map[string]permittedRequest {
	pingers, readers, erasers := []string{"ping", "all"}, []string{"read", "all", "alice", "bob"}, []string{
		"admin",
		"all",
	}
	own, owners := []string{"ping", "all", "alice"}, []string{"all", "alice"}
	anyone := append([]string{"nobody", "ping", "admin", "all, elsewhere", "alice, elsewhere", "alice, nowhere"},
		readers...)
	const namespace = "/v1/namespaces/:namespace"
	const user, call = namespace + "/users/:user", namespace + "/calls/:id"
	return map[string]permittedRequest{
		"POST " + user + "/ping":            {"", `{}`, own},
		"POST " + user + "/leave":           {"", `{}`, own},
		"POST " + namespace + "/pings":      {"", `{"pings":[{"user":"alice"}]}`, pingers},
		"POST " + namespace + "/leaves":     {"", `{"leaves":[{"user":"alice"}]}`, pingers},
		"GET " + user:                       {"", "", readers},
		"GET " + user + "/dot.svg":          {"", "", readers},
		"POST " + namespace + "/lookup":     {"", `{"users":["alice"]}`, readers},
		"GET " + namespace + "/lookup":      {"user=alice", "", readers},
		"GET " + namespace + "/users":       {"", "", readers},
		"GET " + namespace + "/counts":      {"", "", readers},
		"GET " + namespace + "/changes":     {"user=alice", "", readers},
		"POST " + namespace + "/changes":    {"", `{"users":["alice"]}`, readers},
		"GET " + namespace:                  {"", "", readers},
		"POST " + namespace + "/calls":      {"", `{"from":"alice","to":"bob"}`, own},
		"GET " + namespace + "/calls":       {"user=alice", "", owners},
		"GET " + call:                       {"", "", []string{"all", "alice", "bob"}},
		"POST " + call + "/accept":          {"", `{"user":"alice"}`, own},
		"POST " + call + "/reject":          {"", `{"user":"alice"}`, own},
		"POST " + call + "/end":             {"", `{"user":"alice"}`, own},
		"POST " + call + "/alive":           {"", `{"user":"alice"}`, own},
		"GET /v1/namespaces":                {"", "", anyone},
		"PUT " + user + "/availability":     {"", `{"availability":"busy"}`, own},
		"GET " + user + "/availability":     {"", "", owners},
		"DELETE " + user + "/availability":  {"", "", own},
		"PUT " + user + "/contacts":         {"", `{"users":["bob"]}`, own},
		"PATCH " + user + "/contacts":       {"", `{"add":["bob"]}`, own},
		"DELETE " + user + "/contacts":      {"", "", own},
		"GET " + user + "/contacts":         {"", "", owners},
		"GET " + user + "/devices":          {"", "", []string{"read", "all", "alice"}},
		"DELETE " + user + "/connections":   {"", "", erasers},
		"DELETE " + user:                    {"", "", erasers},
		"DELETE " + namespace:               {"confirm=chat", "", erasers},
		"GET /v1/webhooks":                  {"", "", []string{"all"}},
		"POST /v1/webhooks/:webhook/test":   {"", "", []string{"all"}},
		"POST /v1/webhooks/:webhook/enable": {"", "", []string{"all"}},
	}
}

// IsPublic reports whether a path needs no credentials and ignores invalid ones.
func IsPublic(path string) bool { return !strings.HasPrefix(path, "/v1/") }

// RefusalStatus returns the status for a caller without the permission: 403 if the caller is authenticated.
func RefusalStatus(name string) int {
	switch name {
	case "nobody", "stranger", "garbage", "basic", "empty", "alice, expired":
		return http.StatusUnauthorized
	default:
		return http.StatusForbidden
	}
}

// WithoutID returns a response without what differs from request to request.
func WithoutID(t *testing.T, r Response) string {
	t.Helper()
	body := r.JSON(t)
	delete(body, "request_id")
	return fmt.Sprint(r.Status, r.Header.Get("WWW-Authenticate"), r.Header.Get("Cache-Control"), body)
}
