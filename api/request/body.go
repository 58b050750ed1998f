// Package request reads the bodies, parameters, headers and cursors of requests. It also writes responses in JSON.
package request

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

// The times that a request can take.
const (
	Timeout      = 30 * time.Second // for a whole request to arrive
	WriteTimeout = 30 * time.Second // for its response to be written, after that

	maxDrain     = 64 << 20        // bytes of a body that are read after an error
	drainTimeout = 5 * time.Second // for these

	freeBody    = 1 << 10 // bytes of each body; not counted, since its connection takes more
	minBodyRate = 1 << 10 // bytes a second, after the first bytes of a body
	rateWindow  = 10 * time.Second
)

// Memory is what a body and its items take memory from. Grow returns the error of the request if there is no more.
type Memory interface {
	Grow(bytes int) error
	Shrink(bytes int)
}

// Form is what is known about a JSON body before it is read. Its items take memory until the response is sent, in
// addition to their text.
type Form struct {
	Max      int64 // bytes
	Optional bool  // whether it may be missing
	Items    int   // signs that count; 0 if the items take little memory
	Sign     byte  // one for each item and for what else takes as much memory, such as devices
	Each     int   // bytes for each sign
}

// memory returns the memory of a text and its items, including that of their strings, which are at most as long as the
// text.
func (f Form) memory(text []byte) int {
	signs := 1 + bytes.Count(text, []byte{f.Sign}) + bytes.Count(text, []byte("null")) // an item may be null
	return len(text) + f.Each*min(signs, f.Items)
}

// Read reads the body of a request into v, with options of [Strict]. Without a body it does not change v. The caller
// must give the memory back.
func (f Form) Read(c echo.Context, m Memory, v any, strict json.Options) error {
	b := body{memory: m, c: c, max: f.Max}
	err := b.read()
	switch {
	case err != nil || len(b.content) == 0 && f.Optional:
		return err
	case len(b.content) == 0:
		return problem.New(problem.InvalidJSON, "The body is missing.")
	case f.Items > 0:
		if err := m.Grow(f.memory(b.content)); err != nil {
			return err
		}
		defer b.replace(nil)
	}
	switch media, err := MediaType(c); {
	case err != nil:
		return err
	case media != JSON:
		return problem.Errorf(problem.UnsupportedMediaType, "Unsupported content type %s: send %s.", media, JSON)
	}
	return Unmarshal(b.content, v, strict)
}

// ReadError returns the error of a body that could not be read to its end.
func ReadError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.Errorf(problem.BodyTooLarge,
			"The body has more than %d bytes: send a smaller one.", tooLarge.Limit)
	}
	return problem.New(problem.InvalidJSON, "The body is incomplete or arrived too slowly.").Because(err)
}

// body reads the body of one request into memory that is counted.
type body struct {
	memory  Memory
	c       echo.Context
	max     int64 // bytes
	content []byte
}

// read reads the body to its end.
func (b *body) read() error {
	request := b.c.Request()
	if request.ContentLength == 0 {
		return nil
	}
	if request.ContentLength > b.max {
		return ReadError(&http.MaxBytesError{Limit: b.max})
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
			return ReadError(err)
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
		if err := b.memory.Grow(size); err != nil {
			return err
		}
	}
	b.replace(append(make([]byte, 0, size), b.content...))
	return nil
}

// replace replaces the buffer and gives the memory of the old one back.
func (b *body) replace(content []byte) {
	if size := cap(b.content); size > freeBody {
		b.memory.Shrink(size)
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
		p.last = now.Add(Timeout)
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
		_ = p.controller.SetReadDeadline(time.Now().Add(Timeout))
	}
}

// Drain sends the response now, and reads and discards the rest of the body, within limits. Otherwise the
// connection would be closed while the client still sends, and the client would lose the response.
func Drain(c echo.Context) {
	if c.Request().ContentLength == 0 {
		return
	}
	controller := http.NewResponseController(c.Response().Writer)
	_ = controller.SetReadDeadline(time.Now().Add(drainTimeout)) // without one there is still the byte limit
	if controller.Flush() != nil {                               // it reads a small body before it sends the response
		return
	}
	_, _ = io.CopyN(io.Discard, c.Request().Body, maxDrain) // the response is sent even if this fails
}
