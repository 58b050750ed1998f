// Package web serves the pages for people: the dashboard, the API documentation in Swagger UI, the guides in docs and
// the documents of the API. It also serves lastseen.js, a script for web pages of any origin. A page does not change
// while the server runs.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swaggest/swgui/v5/static"
	"go.yaml.in/yaml/v3"
)

//go:embed *.html *.css *.js *.svg *.d.ts dashboard/*
var files embed.FS

// policy lets a page load only what this server serves, and run no inline scripts. Swagger UI's icons are data URLs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Media types of pages.
const (
	html       = "text/html; charset=utf-8"
	css        = "text/css; charset=utf-8"
	javaScript = "text/javascript; charset=utf-8"
	plainText  = "text/plain; charset=utf-8"
	jsonType   = "application/json"
	svg        = "image/svg+xml"
)

// minGzip is the size in bytes above which a page is compressed. A smaller one fits into a packet anyway.
const minGzip = 1 << 10

// Pages holds the pages by path.
type Pages map[string]func() (page, error)

// page is a page in memory.
type page struct {
	mediaType      string
	etag           string // without quotes
	plain, gzipped []byte // gzipped is nil if the page is small
}

// New returns the pages, of which some are documents, as package lastseen has them. Each page is prepared at its first
// request.
func New(openAPI, asyncAPI, frameSchemas []byte) Pages {
	p := Pages{}
	p.add("/", html, file(files, "dashboard.html"))
	p.add("/dashboard/dashboard.css", css, file(files, "dashboard/dashboard.css"))
	modules, _ := fs.Glob(files, "dashboard/*.js") // fails for malformed patterns only
	for _, name := range modules {
		p.add("/"+name, javaScript, file(files, name))
	}
	p.add("/lastseen.js", javaScript, file(files, "lastseen.js"))
	p.add("/lastseen.d.ts", plainText, file(files, "lastseen.d.ts"))
	p.add("/openapi.yaml", "application/yaml", func() ([]byte, error) { return openAPI, nil }) // RFC 9512
	p.add("/openapi.json", jsonType, func() ([]byte, error) { return asJSON(openAPI) })
	p.add("/asyncapi.yaml", "application/yaml", func() ([]byte, error) { return asyncAPI, nil })
	p.add("/connections.schema.json", "application/schema+json", func() ([]byte, error) { return frameSchemas, nil })
	p.add("/docs/", html, file(files, "docs.html"))
	p.add("/docs/docs.js", javaScript, file(files, "docs.js"))
	p.add("/docs/docs.css", css, file(files, "docs.css"))
	p.add("/docs/favicon.svg", svg, file(files, "favicon.svg"))
	p.add("/docs/swagger-ui.css", css, file(static.FS, "swagger-ui.css.gz"))
	p.add("/docs/swagger-ui-bundle.js", javaScript, file(static.FS, "swagger-ui-bundle.js.gz"))
	p.addGuides()
	return p
}

// add adds a page that is read at its first request.
func (p Pages) add(path, mediaType string, read func() ([]byte, error)) {
	p[path] = sync.OnceValues(func() (page, error) { return newPage(mediaType, read) })
}

// file returns a function that reads a file.
func file(fsys fs.FS, name string) func() ([]byte, error) {
	return func() ([]byte, error) { return fs.ReadFile(fsys, name) }
}

// Paths returns the paths of all pages.
func Paths() []string { return slices.Sorted(maps.Keys(New(nil, nil, nil))) }

// Serve responds with the page at a path, compressed if asked, or with 304 if the client has it.
func (p Pages) Serve(w http.ResponseWriter, r *http.Request, path string, compressed bool) error {
	page, err := p[path]()
	if err != nil {
		return err
	}
	header := w.Header()
	protect(header, path)
	header.Set("Content-Type", page.mediaType)
	body, etag := page.plain, page.etag
	if page.gzipped != nil {
		header.Add("Vary", "Accept-Encoding")
		if compressed {
			body, etag = page.gzipped, page.etag+"-gzip"
			header.Set("Content-Encoding", "gzip")
			header.Set("Content-Length", strconv.Itoa(len(body)))
		}
	}
	header.Set("ETag", strconv.Quote(etag))
	// Only this condition: ranges and others would bring errors of another form.
	match := http.Header{"If-None-Match": {strings.Join(r.Header["If-None-Match"], ",")}}
	http.ServeContent(w, &http.Request{Method: r.Method, Header: match}, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// protect sets the headers that limit what a page can do, and who can use and keep it. Caches revalidate a page each
// time, because an upgrade of the server can change it. They can keep a shared script for a few minutes: it is one
// file, so that no cache can mix two versions.
func protect(header http.Header, path string) {
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	if path == "/lastseen.js" || path == "/lastseen.d.ts" {
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Cross-Origin-Resource-Policy", "cross-origin")
		header.Set("Access-Control-Allow-Origin", "*")
	}
}

// newPage prepares a page. If its content is compressed already, it is only unpacked.
func newPage(mediaType string, read func() ([]byte, error)) (page, error) {
	content, err := read()
	if err != nil {
		return page{}, err
	}
	p := page{mediaType: mediaType, etag: fmt.Sprintf("%x", sha256.Sum256(content))[:32], plain: content}
	if bytes.HasPrefix(content, []byte("\x1f\x8b")) {
		r, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return page{}, err
		}
		p.gzipped = content
		p.plain, err = io.ReadAll(r)
		return p, err
	}
	if len(content) > minGzip {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // fails for unknown levels only
		_, _ = w.Write(content)                                    // into memory, which does not fail
		_ = w.Close()
		p.gzipped = packed.Bytes()
	}
	return p, nil
}

// asJSON returns a document in YAML as JSON.
func asJSON(text []byte) ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}
