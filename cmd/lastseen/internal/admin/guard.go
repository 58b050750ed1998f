package admin

import (
	"net/http"
	"time"
)

// guard refuses requests that web pages make a browser send, and requests beyond maxRequests in progress.
//
// A page can point its own host name at this machine (DNS rebinding): then only the name in Host reveals it. Or it can
// send requests to another origin without reading the response, which still cost a profile or a backup. A link that a
// person opens is allowed. Browsers mark reads of other sites over TLS and on loopback addresses only, so on other
// addresses a page can start, but not read, a profile.
func guard(allowsHost func(host string) bool, next http.Handler) http.Handler {
	inProgress := make(chan struct{}, maxRequests)
	var crossOrigin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !allowsHost(r.Host):
			writeLine(w, http.StatusForbidden, "not an allowed host: use an IP address, localhost, a name without a "+
				"dot, or add the name to --allowed-hosts")
			return
		case crossOrigin.Check(r) != nil, isEmbedded(r):
			writeLine(w, http.StatusForbidden, "requests of web pages are not allowed")
			return
		case r.ContentLength != 0: // the server would wait for it
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout))
			w.Header().Set("Connection", "close")
			writeLine(w, http.StatusBadRequest, "requests have no body here")
			return
		}
		select {
		case inProgress <- struct{}{}:
			defer func() { <-inProgress }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			writeLine(w, http.StatusServiceUnavailable, "too many requests in progress")
		}
	})
}

// isEmbedded reports whether a page of another site has sent a request, and not a person who opened a link.
func isEmbedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document"
}
