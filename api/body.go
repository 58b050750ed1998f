package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

const (
	maxBody       = 1 << 20   // bytes of a JSON body
	maxLookupBody = 512 << 10 // the same, of a lookup
	maxOneBody    = 16 << 10  // the same, about one user, which may contain a token

	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"

	minBodyRate = 1 << 10 // bytes a second, after the first bytes of a body
	rateWindow  = 10 * time.Second
)

// mediaType returns the type of the body: mediaJSON or mediaNDJSON. The types that curl and browsers send by default
// count as JSON.
func mediaType(c echo.Context) (string, error) {
	header := c.Request().Header
	if encoding := header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Unsupported content encoding %.40q: send the body unencoded.", encoding)
	}
	value := header.Get(echo.HeaderContentType)
	if value == "" {
		return mediaJSON, nil
	}
	media, params, err := mime.ParseMediaType(value)
	charset := strings.ToLower(params["charset"])
	if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Invalid content type or charset in %.60q: send %s in UTF-8.", value, mediaJSON)
	}
	switch media {
	case mediaJSON, "text/plain", "application/x-www-form-urlencoded":
		return mediaJSON, nil
	case mediaNDJSON:
		return mediaNDJSON, nil
	default:
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Unsupported content type %.60q: send %s.", value, mediaJSON)
	}
}

// bodyError is the error of a body that could not be read to its end.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.Errorf(problem.BodyTooLarge,
			"The body has more than %d bytes: send a smaller one.", tooLarge.Limit)
	}
	return problem.New(problem.InvalidJSON, "The body is incomplete or arrived too slowly.").Because(err)
}

// body reads the body of one request into memory that is counted.
type body struct {
	bodyHold
	c       echo.Context
	max     int64 // bytes
	content []byte
}

// body returns the body of a request, of up to max bytes. The caller must release its memory.
func (s *server) body(c echo.Context, max int64) *body {
	return &body{bodyHold: s.hold(c), c: c, max: max}
}

// readOne reads JSON about one user into v. Without a body it does not change v.
func (s *server) readOne(c echo.Context, v any) error {
	b := s.body(c, maxOneBody)
	defer b.release()
	if err := b.read(); err != nil || len(b.content) == 0 {
		return err
	}
	return b.decode(v)
}

// readSome reads a body that cannot be empty.
func (b *body) readSome() error {
	err := b.read()
	if err == nil && len(b.content) == 0 {
		return problem.New(problem.InvalidJSON, "The body is missing.")
	}
	return err
}

// listMemory is how much memory the items of a list take until the response is sent, in addition to their text.
type listMemory struct {
	max   int  // signs that count
	sign  byte // one for each item and, in items, for each device
	bytes int  // for each sign: see TestDecodedMemory
}

var (
	itemMemory   = listMemory{2 * maxItems, '{', 192}
	lookupMemory = listMemory{maxLookup, ',', 512}
)

// of returns the memory for the list in a text, including that of its strings, which are at most as long as the text.
func (m listMemory) of(text []byte) int {
	signs := 1 + bytes.Count(text, []byte{m.sign}) + bytes.Count(text, []byte("null")) // an item may be null
	return len(text) + m.bytes*min(signs, m.max)
}

// readList reads JSON with a list into v. The memory of the list counts until it is released.
func (b *body) readList(v any, list listMemory) error {
	if err := b.readSome(); err != nil {
		return err
	}
	if err := b.grow(list.of(b.content)); err != nil {
		return err
	}
	err := b.decode(v)
	b.replace(nil)
	return err
}

// decode decodes the content into v.
func (b *body) decode(v any) error {
	media, err := mediaType(b.c)
	switch {
	case err != nil:
		return err
	case media != mediaJSON:
		return problem.Errorf(problem.UnsupportedMediaType, "Unsupported content type %s: send %s.", media, mediaJSON)
	}
	return unmarshal(b.content, v)
}

// read reads the body to its end.
func (b *body) read() error {
	request := b.c.Request()
	if request.ContentLength == 0 {
		return nil
	}
	if request.ContentLength > b.max {
		return bodyError(&http.MaxBytesError{Limit: b.max})
	}
	from := http.MaxBytesReader(b.c.Response().Writer, request.Body, b.max)
	pace := pace{controller: http.NewResponseController(b.c.Response())}
	for {
		if err := b.makeRoom(); err != nil {
			return err
		}
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
	}
}

// makeRoom doubles the buffer if it is full, to at most one byte more than can arrive: the next read then finds the end
// of the body. While the content is copied, both buffers count.
func (b *body) makeRoom() error {
	if len(b.content) < cap(b.content) {
		return nil
	}
	end := b.max
	if announced := b.c.Request().ContentLength; announced > 0 {
		end = announced
	}
	size := min(max(2*cap(b.content), freeBody), int(end)+1)
	if size > freeBody {
		if err := b.grow(size); err != nil {
			return err
		}
	}
	b.replace(append(make([]byte, 0, size), b.content...))
	return nil
}

// replace replaces the buffer and gives the memory of the old one back.
func (b *body) replace(content []byte) {
	if size := cap(b.content); size > freeBody {
		b.shrink(size)
	}
	b.content = content
}

// pace ends the reading of a body that arrives more slowly than [minBodyRate] in a [rateWindow]. Most bodies arrive at
// once and set no deadline.
type pace struct {
	controller *http.ResponseController // sets no deadlines in tests whose writer has none
	last       time.Time                // deadline of the whole request
	wanted     int                      // bytes until the next window
}

// arrived counts bytes, and begins a new window after enough of them.
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

// end replaces the deadline when the body is complete, since a deadline that passes would end the request.
func (p *pace) end() {
	if !p.last.IsZero() {
		_ = p.controller.SetReadDeadline(time.Now().Add(readTimeout))
	}
}
