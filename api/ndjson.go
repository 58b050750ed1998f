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
	readBuffer  = 64 << 10
	lineTimeout = 30 * time.Second // for the next chunk to arrive
)

// recordLines records a stream of lines, chunk by chunk: a chunk ends when it is full and when no
// whole line waits any more, so that a slow stream is recorded as it comes. Nothing but the chunk is
// kept in memory. What was recorded before an error stays recorded.
func (s *server) recordLines(c echo.Context, namespace string, record recordFunc) error {
	l := lines{
		reader:     bufio.NewReaderSize(c.Request().Body, readBuffer),
		controller: http.NewResponseController(c.Response()),
	}
	recorded := 0
	for {
		chunk, readErr := s.readChunk(c, &l)
		if len(chunk) > 0 {
			if _, err := record(c.Request().Context(), namespace, chunk); err != nil {
				return interrupted(c, classify(err), err, l.chunkStart, recorded)
			}
			recorded += len(chunk)
		}
		if errors.Is(readErr, io.EOF) {
			return answer(c, recordedAnswer{Recorded: recorded})
		}
		if readErr != nil {
			return interrupted(c, classify(readErr), readErr, l.number, recorded)
		}
	}
}

// interrupted is the error of a stream of which a part is recorded. The answer does not wait for the
// rest of it, so the connection ends.
func interrupted(c echo.Context, e *apiError, cause error, line, recorded int) error {
	c.Response().Header().Set(echo.HeaderConnection, "close")
	stopped := *e
	stopped.line, stopped.recorded = line, &recorded
	if stopped.cause == nil {
		stopped.cause = cause
	}
	return &stopped
}

// readChunk reads the lines of the next chunk. With an error it returns the lines before.
func (s *server) readChunk(c echo.Context, l *lines) ([]store.Sighting, error) {
	l.extendDeadlines()
	now, err := s.store.Now(c.Request().Context())
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
			chunk = append(chunk, sighting)
		}
		if !l.waiting() {
			break
		}
	}
	return chunk, nil
}

// lines takes a stream apart.
type lines struct {
	reader     *bufio.Reader
	controller *http.ResponseController
	number     int // of the line read last, from 1
	chunkStart int // number of the first line of the chunk
}

// extendDeadlines gives the client time for another chunk. A writer that has no deadlines, as in
// tests, needs none.
func (l *lines) extendDeadlines() {
	deadline := time.Now().Add(lineTimeout)
	_ = l.controller.SetReadDeadline(deadline)
	_ = l.controller.SetWriteDeadline(deadline.Add(writeTimeout))
}

// next returns the next line, valid until the one after; io.EOF after the last.
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
	buffered, _ := l.reader.Peek(l.reader.Buffered()) // no more than there is
	return bytes.IndexByte(buffered, '\n') >= 0
}
