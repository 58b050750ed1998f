package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

// Page serves index.html at / and the other files by their names. In them, {{.}} stands for the URL of the lastseen
// server, which lastseen.js is loaded from. Pages load scripts from their own site and that server, and talk to these
// two.
func Page(files fs.FS, presence string) http.Handler {
	socket := strings.Replace(presence, "http", "ws", 1)
	policy := fmt.Sprintf("default-src 'none'; script-src 'self' %[1]s; style-src 'self'; img-src data:; "+
		"connect-src 'self' %[1]s %[2]s; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		presence, socket)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
		content, err := fs.ReadFile(files, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		content = bytes.ReplaceAll(content, []byte("{{.}}"), []byte(presence))
		w.Header().Set("Content-Security-Policy", policy)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}
