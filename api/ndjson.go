package api

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"

	"github.com/lastseen/lastseen/api/guard"
)

const (
	maxLine     = 4096 // bytes of a line of NDJSON, its end not counted
	maxChunk    = 512  // lines recorded at once
	readBuffer  = 16 << 10
	lineMemory  = 128              // bytes that a line takes until it is recorded, without its user
	extraMemory = 256              // the same, for a device or a wait, without their texts
	lineTimeout = 30 * time.Second // for the next chunk to arrive
)

// recordLines records a stream of lines in chunks. A chunk ends when it is full or when no whole line has arrived, so
// slow streams are recorded without delay. Only one chunk is in memory. An error does not undo the chunks before it. A
// stream can last for days, so the caller is authorized again before each chunk.
func (s *server) recordLines(c echo.Context, e telemetry.Event, namespace string) error {
	l := lines{hold: s.hold(c), controller: http.NewResponseController(c.Response())}
	defer l.hold.Release()
	if err := l.hold.Grow(readBuffer); err != nil {
		return err
	}
	l.reader = bufio.NewReaderSize(c.Request().Body, readBuffer)
	recorded := 0
	for {
		var chunk batch
		readErr := s.readChunk(c, e, namespace, &l, &chunk)
		if chunk.size() > 0 {
			caller, err := s.authenticateAgain(c)
			if err == nil {
				err = checkPermission(c, guard.PingBulk, caller)
			}
			if err == nil {
				_, err = s.record(c.Request().Context(), e, namespace, &chunk)
			}
			if err != nil {
				s.Telemetry.Refused(e, chunk.size())
				return interrupted(c, classify(err), err, l.chunkStart, recorded)
			}
			recorded += chunk.size()
		}
		l.forget()
		if errors.Is(readErr, io.EOF) {
			return request.Respond(c, bulkResponse{Recorded: recorded})
		}
		if readErr != nil {
			return interrupted(c, classify(readErr), readErr, l.number, recorded)
		}
	}
}

// interrupted is the error of a stream of which a part is recorded. The response does not wait for the rest of the
// stream, so the connection ends.
func interrupted(c echo.Context, e *problem.Error, cause error, line, recorded int) error {
	c.Response().Header().Set(echo.HeaderConnection, "close")
	stopped := *e
	stopped.Line, stopped.Recorded = line, &recorded
	return stopped.Because(cmp.Or(stopped.Cause, cause))
}

// readChunk reads the lines of the next chunk. With an error, the chunk has the lines before it.
func (s *server) readChunk(c echo.Context, e telemetry.Event, namespace string, l *lines, chunk *batch) error {
	l.extendDeadlines()
	now, err := s.Store.Now(c.Request().Context())
	if err != nil {
		return err
	}
	l.chunkStart = l.number + 1
	for chunk.size() < maxChunk {
		line, err := l.next()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var i item
			if err := request.Unmarshal(line, &i, strict); err != nil {
				return err
			}
			if err := l.keep(i); err != nil {
				return err
			}
			if err := chunk.add(e, namespace, i.User, i.assertion, now); err != nil {
				return err
			}
		}
		if !l.waiting() {
			break
		}
	}
	return nil
}

// lines reads a stream line by line.
type lines struct {
	reader     *bufio.Reader
	controller *http.ResponseController
	hold       *limit.Hold
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
func (l *lines) keep(i item) error {
	size := lineMemory + len(i.User)
	if i.Device != nil || i.After != "" {
		size += extraMemory
	}
	if i.Device != nil {
		size += len(i.Device.ID) + len(i.Device.Meta)
	}
	if err := l.hold.Grow(size); err != nil {
		return err
	}
	l.kept += size
	return nil
}

// forget gives the memory of the chunk back.
func (l *lines) forget() {
	l.hold.Shrink(l.kept)
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
		return nil, problem.Errorf(problem.BodyTooLarge, "The line has more than %d bytes.", maxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, request.ReadError(err)
	}
	return line, nil
}

// waiting reports whether another whole line has arrived.
func (l *lines) waiting() bool {
	buffered, _ := l.reader.Peek(l.reader.Buffered()) // does not block or fail
	return bytes.IndexByte(buffered, '\n') >= 0
}
