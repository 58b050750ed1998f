package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
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
	etag      string                 // without quotes; that of the compressed content ends in -gzip
	plain     func() ([]byte, error) // the content
	packed    func() ([]byte, error) // the content, compressed; nil if it is not worth it
}

// newFile returns a file with the content, which is compressed once, for the first client that takes that.
func newFile(mediaType string, content []byte) *file {
	f := &file{mediaType: mediaType, etag: fileTag(content), plain: always(content)}
	if len(content) > minGzip {
		f.packed = sync.OnceValues(func() ([]byte, error) { return gzipBest(content), nil })
	}
	return f
}

// newGzippedFile returns a file whose content is compressed. It is unpacked once, for the first client that does not
// take that: doing so each time would cost a thousand times what asking costs.
func newGzippedFile(mediaType string, content []byte) *file {
	return &file{
		mediaType: mediaType, etag: fileTag(content), packed: always(content),
		plain: sync.OnceValues(func() ([]byte, error) { return gunzip(content) }),
	}
}

func fileTag(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content))[:32] }

func always(content []byte) func() ([]byte, error) {
	return func() ([]byte, error) { return content, nil }
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
	etag, content, packed := strconv.Quote(f.etag), f.plain, false
	if f.packed != nil {
		varyByEncoding(header)
		packed = acceptsGzip(c.Request().Header[echo.HeaderAcceptEncoding])
	}
	if packed {
		etag, content = strconv.Quote(f.etag+"-gzip"), f.packed
	}
	header.Set("ETag", etag)
	if etagMatches(c.Request().Header.Values("If-None-Match"), etag) {
		return c.NoContent(http.StatusNotModified)
	}
	body, err := content()
	if err != nil {
		return err
	}
	if packed {
		header[echo.HeaderContentEncoding] = encodingGzip
	}
	header.Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
	return notSent(c.Blob(http.StatusOK, f.mediaType, body))
}
