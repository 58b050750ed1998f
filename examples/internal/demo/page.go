package demo

import (
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	text "text/template"
)

// Page serves index.html at / and the other files by their names. In HTML and scripts, {{.}} is the URL of the lastseen
// server, which lastseen.js is loaded from.
func Page(files fs.FS, presence string) http.Handler {
	policy := policy(presence)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = template.Must(template.ParseFS(files, "index.html")).Execute(w, presence) // an error: the browser is gone
	})
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if path.Ext(name) != ".js" {
			http.ServeFileFS(w, r, files, name)
			return
		}
		script, err := fs.ReadFile(files, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_ = text.Must(text.New(name).Parse(string(script))).Execute(w, presence)
	})
	return mux
}

// policy lets the page load scripts from its own site and the lastseen server, and talk to these two.
func policy(presence string) string {
	socket := strings.Replace(presence, "http", "ws", 1)
	return fmt.Sprintf("default-src 'none'; script-src 'self' %[1]s; style-src 'self'; img-src data:; "+
		"connect-src 'self' %[1]s %[2]s; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		presence, socket)
}
