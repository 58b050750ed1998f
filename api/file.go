package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// filePolicy is what browsers may do on our pages: use what this server serves, and nothing inline.
// Swagger UI's icons are data URLs.
const filePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is something that does not change while the server runs.
type file struct {
	mediaType string
	content   []byte
	plain     func() ([]byte, error) // the content unpacked, if it is compressed; otherwise nil
	etag      string
}

func newFile(mediaType string, content []byte) *file {
	return &file{mediaType: mediaType, content: content, etag: fmt.Sprintf("%x", sha256.Sum256(content))[:32]}
}

// newGzippedFile returns a file whose content is compressed. It is unpacked once, for the first client that cannot do
// it: doing so each time would cost a thousand times what asking costs.
func newGzippedFile(mediaType string, content []byte) *file {
	f := newFile(mediaType, content)
	f.plain = sync.OnceValues(func() ([]byte, error) { return gunzip(content) })
	return f
}

// serve answers with the file, or with 304 to a client that has it. An upgrade of the server may change
// it, so caches have to ask each time.
func (f *file) serve(c echo.Context) error {
	header := c.Response().Header()
	header.Set(echo.HeaderCacheControl, "no-cache")
	header.Set(echo.HeaderContentSecurityPolicy, filePolicy)
	header.Set(echo.HeaderReferrerPolicy, "no-referrer")
	header.Set(echo.HeaderXFrameOptions, "DENY") // for browsers that do not know frame-ancestors
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	unpack, etag := false, strconv.Quote(f.etag)
	if f.plain != nil {
		header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
		unpack = !acceptsGzip(c.Request().Header.Values(echo.HeaderAcceptEncoding))
	}
	if unpack {
		etag = strconv.Quote(f.etag + "-identity")
	}
	header.Set("ETag", etag)
	if namesTag(c.Request().Header.Values("If-None-Match"), etag) {
		return c.NoContent(http.StatusNotModified)
	}
	content := f.content
	switch {
	case unpack:
		var err error
		if content, err = f.plain(); err != nil {
			return err
		}
	case f.plain != nil:
		header.Set(echo.HeaderContentEncoding, "gzip")
	}
	header.Set(echo.HeaderContentLength, strconv.Itoa(len(content)))
	return notSent(c.Blob(http.StatusOK, f.mediaType, content))
}

// acceptsGzip reports whether the client named gzip among the encodings that it takes.
func acceptsGzip(accepted []string) bool {
	for coding := range strings.SplitSeq(strings.Join(accepted, ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, weight, weighted := strings.Cut(weight, "=")
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}

func gunzip(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
