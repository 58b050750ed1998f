package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

//go:embed page
var files embed.FS

// newSite returns a handler that accepts requests of its own pages only. Their statuses are those of a lastseen server,
// by its URL.
func newSite(presence string, room *room) http.Handler {
	pages, _ := fs.Sub(files, "page") // a valid name, the only condition
	mux := http.NewServeMux()
	mux.Handle("GET /", demo.Page(pages, presence))
	mux.HandleFunc("GET /events", room.stream)
	mux.HandleFunc("POST /messages", room.receive)
	return http.NewCrossOriginProtection().Handler(mux)
}

// stream sends the conversation to a page of a user, until the page is closed.
func (r *room) stream(w http.ResponseWriter, request *http.Request) {
	user := request.URL.Query().Get("user")
	if !validUser(user) {
		http.Error(w, "user: use 1 to 32 letters, digits or hyphens", http.StatusBadRequest)
		return
	}
	r.join(user)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for last := 0; ; {
		events, changed := r.after(last)
		for _, e := range events {
			data, _ := json.Marshal(e) // of texts, which does not fail
			fmt.Fprintf(w, "data: %s\n\n", data)
			last = e.number
		}
		_ = http.NewResponseController(w).Flush() // an error ends the context
		select {
		case <-request.Context().Done():
			return
		case <-changed:
		}
	}
}

// receive adds a message of a user. A real chat would know the user from the session, and not believe the page.
func (r *room) receive(w http.ResponseWriter, request *http.Request) {
	var m message
	err := json.NewDecoder(http.MaxBytesReader(w, request.Body, 4096)).Decode(&m)
	if err != nil || !validUser(m.User) || m.Text == "" || utf8.RuneCountInString(m.Text) > 500 {
		http.Error(w, "a message has a user and a text of 1 to 500 characters", http.StatusBadRequest)
		return
	}
	r.post(m)
	w.WriteHeader(http.StatusNoContent)
}

// validUser reports whether a user has 1 to 32 letters, digits or hyphens.
func validUser(user string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	return user != "" && len(user) <= 32 && strings.Trim(user, allowed) == ""
}
