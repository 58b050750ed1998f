package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/store"
)

const (
	maxLine     = 4096 // bytes of a line of NDJSON, its end not counted
	maxChunk    = 512  // lines recorded at once
	readBuffer  = 16 << 10
	lineMemory  = 128              // bytes that a line takes until it is recorded, without its user
	lineTimeout = 30 * time.Second // for the next chunk to arrive
)

// recordLines records a stream of lines in chunks. A chunk ends when it is full or when no whole line has arrived, so
// slow streams are recorded without delay. Only one chunk is in memory. An error does not undo the chunks before it. A
// stream can last for days, so the caller is authorized again before each chunk.
func (s *server) recordLines(c echo.Context, e event, namespace string) error {
	l := lines{hold: s.hold(c), controller: http.NewResponseController(c.Response())}
	defer l.hold.release()
	if err := l.hold.grow(readBuffer); err != nil {
		return err
	}
	l.reader = bufio.NewReaderSize(c.Request().Body, readBuffer)
	recorded := 0
	for {
		chunk, readErr := s.readChunk(c, &l)
		if len(chunk) > 0 {
			err := s.authorizeAgain(c, pingBulk)
			if err == nil {
				_, err = s.record(c.Request().Context(), e, namespace, chunk)
			}
			if err != nil {
				s.metrics.refused(e, len(chunk))
				return interrupted(c, classify(err), err, l.chunkStart, recorded)
			}
			recorded += len(chunk)
		}
		l.forget()
		if errors.Is(readErr, io.EOF) {
			return respond(c, bulkResponse{Recorded: recorded})
		}
		if readErr != nil {
			return interrupted(c, classify(readErr), readErr, l.number, recorded)
		}
	}
}

// interrupted is the error of a stream of which a part is recorded. The response does not wait for the rest of the
// stream, so the connection ends.
func interrupted(c echo.Context, e *apiError, cause error, line, recorded int) error {
	c.Response().Header().Set(echo.HeaderConnection, "close")
	stopped := *e
	stopped.line, stopped.recorded = line, &recorded
	if stopped.cause == nil {
		stopped.cause = cause
	}
	return &stopped
}

// readChunk reads the lines of the next chunk. With an error it also returns the lines before it.
func (s *server) readChunk(c echo.Context, l *lines) ([]store.Sighting, error) {
	l.extendDeadlines()
	now, err := s.Store.Now(c.Request().Context())
	if err != nil {
		return nil, err
	}
	var chunk []store.Sighting
	l.chunkStart = l.number + 1
	for len(chunk) < maxChunk {
		line, err := l.next()
		if err != nil {
			return chunk, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var i item
			if err := unmarshal(line, &i); err != nil {
				return chunk, err
			}
			sighting, bad := i.sighting(now)
			if bad != nil {
				return chunk, bad
			}
			if err := l.keep(sighting); err != nil {
				return chunk, err
			}
			chunk = append(chunk, sighting)
		}
		if !l.waiting() {
			break
		}
	}
	return chunk, nil
}

// lines reads a stream line by line.
type lines struct {
	reader     *bufio.Reader
	controller *http.ResponseController
	hold       bodyHold
	kept       int // bytes held for the chunk
	number     int // of the last line read, from 1
	chunkStart int // number of the first line of the chunk
}

// extendDeadlines gives the client time for another chunk.
func (l *lines) extendDeadlines() {
	deadline := time.Now().Add(lineTimeout)
	_ = l.controller.SetReadDeadline(deadline)
	_ = l.controller.SetWriteDeadline(deadline.Add(writeTimeout))
}

// keep takes memory for a line of the chunk.
func (l *lines) keep(s store.Sighting) error {
	size := lineMemory + len(s.User)
	if err := l.hold.grow(size); err != nil {
		return err
	}
	l.kept += size
	return nil
}

// forget gives the memory of the chunk back.
func (l *lines) forget() {
	l.hold.shrink(l.kept)
	l.kept = 0
}

// next returns the next line, which is valid until the next call, or io.EOF after the last line.
func (l *lines) next() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, io.EOF
	}
	l.number++
	if len(bytes.TrimSuffix(line, []byte("\n"))) > maxLine || errors.Is(err, bufio.ErrBufferFull) {
		return nil, errorf(codeBodyTooLarge, "The line has more than %d bytes.", maxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, bodyError(err)
	}
	return line, nil
}

// waiting reports whether another whole line has arrived.
func (l *lines) waiting() bool {
	buffered, _ := l.reader.Peek(l.reader.Buffered()) // does not block or fail
	return bytes.IndexByte(buffered, '\n') >= 0
}
