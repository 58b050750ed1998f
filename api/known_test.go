package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// knowsChat makes a server that knows the namespace chat only.
func knowsChat(c *Config) {
	c.RefuseUnknown = true
	c.Namespaces = map[string]Settings{"chat": c.Settings}
}

// TestUnknownNamespaces checks that a namespace which the server does not know is an error on every route but those
// that erase, and that the list of namespaces is not affected.
func TestUnknownNamespaces(t *testing.T) {
	w := newWorld(t, fileStore(t), knowsChat)
	requests := 0
	for _, r := range (&server{}).routes() {
		if !strings.Contains(r.path, ":namespace") {
			continue
		}
		requests++
		for _, namespace := range []string{"chat", "chta"} {
			path := strings.NewReplacer("/v1/namespaces", "", ":namespace", namespace, ":user", "alice").Replace(r.path)
			body := ""
			switch r.method + " " + path[strings.LastIndex(path, "/")+1:] {
			case "POST pings":
				body = `{"pings":[]}`
			case "POST leaves":
				body = `{"leaves":[]}`
			case "POST lookup":
				body = `{"users":["alice"]}`
			case "GET lookup":
				path += "?user=alice"
			case "DELETE " + namespace:
				path += "?confirm=" + namespace
			}
			if namespace == "chat" || r.method == http.MethodDelete {
				require.Less(t, w.send(r.method, path, body).status, 300, "%s %s", r.method, path)
				continue
			}
			problem := w.fails(codeNotFound, r.method, path, body)
			require.Contains(t, problem["detail"], `"chta" is not configured`, path)
		}
	}
	require.Equal(t, 12, requests)
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, "", "").status)
	w.fails(codeInvalidNamespace, http.MethodGet, "/.hidden", "")
}

// TestUnknownNamespacesAreNotRevealed: callers without the right credentials get the same response for namespaces that
// are known and others.
func TestUnknownNamespacesAreNotRevealed(t *testing.T) {
	guard, credentials := callers(t)
	w := newWorld(t, fileStore(t), knowsChat, func(c *Config) { c.Auth = guard })
	const post = http.MethodPost
	for _, path := range []string{"/users/alice/ping", "/users/alice/leave"} {
		for _, namespace := range []string{"/chat", "/chta"} {
			w.fails(codeUnauthenticated, post, namespace+path, "")
			w.fails(codeForbidden, post, namespace+path, "", "Authorization: "+credentials["all, elsewhere"])
			w.fails(codeForbidden, post, namespace+path, "", "Authorization: "+credentials["alice, elsewhere"])
		}
		require.Equal(t, http.StatusOK, w.send(post, "/chat"+path, "", "Authorization: "+credentials["all"]).status)
		w.fails(codeNotFound, post, "/chta"+path, "", "Authorization: "+credentials["all"])
	}
}
