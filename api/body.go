package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
)

const (
	maxBody       = 1 << 20   // bytes of a JSON body
	maxLookupBody = 512 << 10 // the same, of a lookup
	maxOneBody    = 16 << 10  // the same, about one user; most of it is for a token
	maxAhead      = 5000      // milliseconds that a ping or leave may be ahead of the server
)

const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
)

const (
	minBodyRate = 1 << 10 // bytes a second, of a body that has begun
	rateWindow  = 10 * time.Second
	minGrowth   = 4 << 10 // bytes by which the buffer of a body grows at least
)

// mediaType returns the type of the body: mediaJSON or mediaNDJSON. What curl and browsers send by
// default is read as JSON.
func mediaType(c echo.Context) (string, error) {
	header := c.Request().Header
	if encoding := header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return "", errorf(codeUnsupportedMediaType, "Unsupported content encoding %.40q: send the body unencoded.", encoding)
	}
	value := header.Get(echo.HeaderContentType)
	if value == "" {
		return mediaJSON, nil
	}
	media, params, err := mime.ParseMediaType(value)
	charset := strings.ToLower(params["charset"])
	if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "", errorf(codeUnsupportedMediaType, "Invalid content type or charset in %.60q: send %s in UTF-8.", value, mediaJSON)
	}
	switch media {
	case mediaJSON, "text/plain", "application/x-www-form-urlencoded":
		return mediaJSON, nil
	case mediaNDJSON:
		return mediaNDJSON, nil
	default:
		return "", errorf(codeUnsupportedMediaType, "Unsupported content type %.60q: send %s.", value, mediaJSON)
	}
}

// bodyError says why a body could not be read to its end.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return errorf(codeBodyTooLarge, "The body has more than %d bytes: send a smaller one.", tooLarge.Limit)
	}
	e := newError(codeInvalidJSON, "The body is incomplete or arrived too slowly.")
	e.cause = err
	return e
}

// body reads the body of one request into memory that is counted.
type body struct {
	bodyHold
	c       echo.Context
	most    int64 // bytes that it may have
	content []byte
}

// body returns the body of a request, of so many bytes at most. Close gives its memory back.
func (s *server) body(c echo.Context, most int64) *body {
	return &body{bodyHold: s.hold(c), c: c, most: most}
}

func (b *body) close() { b.release() }

// readOne reads the JSON about one user into v; if there is no body, it leaves v as it is.
func (s *server) readOne(c echo.Context, v any) error {
	b := s.body(c, maxOneBody)
	defer b.close()
	if err := b.read(); err != nil {
		return err
	}
	_, err := b.decode(v, decodeOne)
	return err
}

// readList reads JSON with a list into v; there has to be a body. What the list takes counts until the body is closed.
func (b *body) readList(v any, list listKind) error {
	if err := b.read(); err != nil {
		return err
	}
	if err := b.grow(list.memory(b.content)); err != nil {
		return err
	}
	there, err := b.decode(v, list.decode)
	if err == nil && !there {
		err = newError(codeInvalidJSON, "The body is missing.")
	}
	b.forget()
	return err
}

// decode decodes what was read into v and reports false if there was nothing.
func (b *body) decode(v any, options json.Options) (bool, error) {
	if len(b.content) == 0 {
		return false, nil
	}
	media, err := mediaType(b.c)
	switch {
	case err != nil:
		return false, err
	case media != mediaJSON:
		return false, errorf(codeUnsupportedMediaType, "Unsupported content type %s: send %s.", media, mediaJSON)
	}
	return true, unmarshal(b.content, v, options)
}

// read reads the body to its end.
func (b *body) read() error {
	request := b.c.Request()
	if request.ContentLength == 0 {
		return nil
	}
	if request.ContentLength > b.most {
		return bodyError(&http.MaxBytesError{Limit: b.most})
	}
	from := http.MaxBytesReader(b.c.Response().Writer, request.Body, b.most)
	pace := pace{controller: http.NewResponseController(b.c.Response())}
	b.content = make([]byte, 0, b.fitting(freeBody))
	for {
		n, err := from.Read(b.content[len(b.content):cap(b.content)])
		b.content = b.content[:len(b.content)+n]
		if errors.Is(err, io.EOF) {
			pace.end()
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		pace.arrived(n)
		if err := b.makeRoom(); err != nil {
			return err
		}
	}
}

// fitting returns a size of the buffer: the one wanted, or the most that can still come if that is less. One byte
// more than that shows the end.
func (b *body) fitting(size int64) int64 {
	most := b.most
	if announced := b.c.Request().ContentLength; announced > 0 {
		most = announced
	}
	return min(size, most+1)
}

// makeRoom makes the buffer larger if it is full. While it is copied, both count.
func (b *body) makeRoom() error {
	old := cap(b.content)
	if len(b.content) < old {
		return nil
	}
	larger := int(b.fitting(int64(old) + max(int64(old), minGrowth)))
	if err := b.grow(larger); err != nil {
		return err
	}
	b.content = append(make([]byte, 0, larger), b.content...)
	if old > freeBody {
		b.shrink(old)
	}
	return nil
}

// forget gives the memory of the text back.
func (b *body) forget() {
	if size := cap(b.content); size > freeBody {
		b.shrink(size)
	}
	b.content = nil
}

// pace ends the reading of a body that has begun and does not go on at [minBodyRate], reckoned over [rateWindow].
// Most bodies arrive as a whole and never notice. A writer that has no deadlines, as in tests, has no pace.
type pace struct {
	controller *http.ResponseController
	last       time.Time // when the whole request has to be there
	wanted     int       // bytes until the window begins again
}

// arrived counts bytes that are not the last ones.
func (p *pace) arrived(n int) {
	if p.wanted -= n; p.wanted > 0 {
		return
	}
	now := time.Now()
	if p.last.IsZero() {
		p.last = now.Add(readTimeout)
	}
	p.wanted = minBodyRate * int(rateWindow/time.Second)
	deadline := now.Add(rateWindow)
	if deadline.After(p.last) {
		deadline = p.last
	}
	_ = p.controller.SetReadDeadline(deadline)
}

// end lets the connection be, once the body is there: a deadline that passes ends the request, too.
func (p *pace) end() {
	if !p.last.IsZero() {
		_ = p.controller.SetReadDeadline(time.Now().Add(readTimeout))
	}
}
