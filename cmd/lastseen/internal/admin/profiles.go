package admin

import (
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"
)

// maxProfile is the longest time that a profile or a trace can cover.
const maxProfile = 60 * time.Second

// addProfiles adds what `go tool pprof` and `go tool trace` read. The command line is left out: it can have the
// password of the store.
func addProfiles(mux *http.ServeMux) {
	mux.Handle("GET /debug/pprof/", boundedTime(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler())
	mux.Handle("GET /debug/pprof/profile", boundedTime(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", boundedTime(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", boundedTime(pprof.Trace))
}

// boundedTime refuses profiles of more than maxProfile.
func boundedTime(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.FormValue("seconds")
		seconds, err := strconv.ParseFloat(text, 64)
		if text != "" && (err != nil || !(seconds > 0 && seconds <= maxProfile.Seconds())) {
			writeLine(w, http.StatusBadRequest, "seconds must be more than 0, and at most 60")
			return
		}
		next(w, r)
	})
}
