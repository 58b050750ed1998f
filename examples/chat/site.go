package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	text "text/template"
	"unicode/utf8"
)

//go:embed page
var files embed.FS

// site serves the page.
type site struct {
	presence string // URL of the lastseen server
	room     *room
}

// newSite returns a handler that accepts requests of its own pages only.
func newSite(presence string, room *room) http.Handler {
	s := &site{presence, room}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /chat.js", s.script)
	mux.HandleFunc("GET /chat.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "page/chat.css")
	})
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("POST /messages", s.post)
	return http.NewCrossOriginProtection().Handler(mux)
}

// policy lets the page load scripts from its own site and the lastseen server, and talk to these two.
func (s *site) policy() string {
	socket := strings.Replace(s.presence, "http", "ws", 1)
	return fmt.Sprintf("default-src 'none'; script-src 'self' %[1]s; style-src 'self'; img-src data:; "+
		"connect-src 'self' %[1]s %[2]s; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		s.presence, socket)
}

func (s *site) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", s.policy())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := template.Must(template.ParseFS(files, "page/index.html"))
	_ = page.Execute(w, s.presence) // the browser is gone
}

// script serves the script of the page, which imports lastseen.js from the server.
func (s *site) script(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	script := text.Must(text.ParseFS(files, "page/chat.js"))
	_ = script.Execute(w, s.presence) // the browser is gone
}

// events streams the conversation to a page of a user.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	user := r.URL.Query().Get("user")
	if !validUser(user) {
		http.Error(w, "user: use 1 to 32 letters, digits or hyphens", http.StatusBadRequest)
		return
	}
	shown, later, leave := s.room.join(user)
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for _, e := range shown {
		writeEvent(w, e)
	}
	for {
		_ = http.NewResponseController(w).Flush() // an error ends the context
		select {
		case <-r.Context().Done():
			return
		case e, open := <-later:
			if !open {
				return
			}
			writeEvent(w, e)
		}
	}
}

func writeEvent(w http.ResponseWriter, e event) {
	data, _ := json.Marshal(e) // of texts, which does not fail
	fmt.Fprintf(w, "data: %s\n\n", data)
}

// post adds a message of a user. A real chat would know the user from the session, and not believe the page.
func (s *site) post(w http.ResponseWriter, r *http.Request) {
	var m message
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&m)
	if err != nil || !validUser(m.User) || m.Text == "" || utf8.RuneCountInString(m.Text) > 500 {
		http.Error(w, "a message has a user and a text of 1 to 500 characters", http.StatusBadRequest)
		return
	}
	s.room.post(m)
	w.WriteHeader(http.StatusNoContent)
}

// validUser reports whether a user has 1 to 32 letters, digits or hyphens.
func validUser(user string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	return user != "" && len(user) <= 32 && strings.Trim(user, allowed) == ""
}
