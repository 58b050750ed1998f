package request

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

const (
	maxLine     = 4096 // bytes of a line of NDJSON, its end not counted
	readBuffer  = 16 << 10
	lineTimeout = 30 * time.Second // for the next chunk to arrive
)

// Lines reads a body line by line, in chunks.
type Lines struct {
	reader     *bufio.Reader
	controller *http.ResponseController
	memory     Memory
	kept       int // bytes of memory for the chunk

	Number int // of the last line read, from 1
	Start  int // number of the first line of the chunk
}

// NewLines reads the lines of a body. It takes memory, which the caller gives back.
func NewLines(c echo.Context, m Memory) (*Lines, error) {
	if err := m.Grow(readBuffer); err != nil {
		return nil, err
	}
	return &Lines{
		reader: bufio.NewReaderSize(c.Request().Body, readBuffer), memory: m,
		controller: http.NewResponseController(c.Response()),
	}, nil
}

// BeginChunk begins a chunk: it gives the memory of the one before back, and the client time for another one.
func (l *Lines) BeginChunk() {
	l.memory.Shrink(l.kept)
	l.kept, l.Start = 0, l.Number+1
	deadline := time.Now().Add(lineTimeout)
	_ = l.controller.SetReadDeadline(deadline)
	_ = l.controller.SetWriteDeadline(deadline.Add(WriteTimeout))
}

// Keep takes memory for what is kept of a line of the chunk.
func (l *Lines) Keep(bytes int) error {
	if err := l.memory.Grow(bytes); err != nil {
		return err
	}
	l.kept += bytes
	return nil
}

// Next returns the next line, which is valid until the next call, or io.EOF after the last line.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, io.EOF
	}
	l.Number++
	if len(bytes.TrimSuffix(line, []byte("\n"))) > maxLine || errors.Is(err, bufio.ErrBufferFull) {
		return nil, problem.Errorf(problem.BodyTooLarge, "The line has more than %d bytes.", maxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, ReadError(err)
	}
	return line, nil
}

// Waiting reports whether another whole line has arrived.
func (l *Lines) Waiting() bool {
	buffered, _ := l.reader.Peek(l.reader.Buffered()) // does not block or fail
	return bytes.IndexByte(buffered, '\n') >= 0
}
