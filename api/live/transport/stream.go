// Package transport reads and writes the bytes of connections that stay open: Server-Sent Events, the format
// text/event-stream of the HTML standard, and WebSockets.
package transport

import (
	"net/http"
	"strconv"
	"time"
)

// MediaType is the media type of events.
const MediaType = "text/event-stream"

// WriteTimeout is how long a client can take to receive one write. Package net/http and the operating system buffer
// some bytes, so a write fails only when a client has received nothing for a while.
const WriteTimeout = 30 * time.Second

// Hold lifts the server's deadlines for a request that stays open: a read deadline would end it, also without a read,
// and a write deadline would end its HTTP/2 stream, also without a write.
func Hold(w http.ResponseWriter) {
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Time{}) // fails only for writers in tests, which have no deadlines
	_ = controller.SetWriteDeadline(time.Time{})
}

// Release ends a Hold: the response has to be written within WriteTimeout.
func Release(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(WriteTimeout))
}

// Writer writes events to one response. One goroutine uses it at a time.
type Writer struct {
	response   http.ResponseWriter
	controller *http.ResponseController
}

// Open sends the header of a response with events and returns a writer for them. Proxies must neither keep nor compress
// nor buffer the events; nginx learns the latter from its own header.
func Open(w http.ResponseWriter) *Writer {
	Hold(w)
	header := w.Header()
	header.Set("Content-Type", MediaType)
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &Writer{w, http.NewResponseController(w)}
}

// Send sends text at once. It returns an error if the client is gone or does not receive it within WriteTimeout; the
// response is then unusable.
func (w *Writer) Send(text []byte) error {
	_ = w.controller.SetWriteDeadline(time.Now().Add(WriteTimeout))
	if _, err := w.response.Write(text); err != nil {
		return err
	}
	if err := w.controller.Flush(); err != nil {
		return err
	}
	_ = w.controller.SetWriteDeadline(time.Time{})
	return nil
}

// AppendStart appends the lines of an event up to its data, which the caller appends without line breaks, and then
// calls [AppendEnd]. The name and the ID must not contain line breaks. A client keeps the ID for the time when it
// connects again; without an ID it keeps the one before.
func AppendStart(b []byte, name, id string) []byte {
	b = append(append(append(b, "event: "...), name...), '\n')
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	return append(b, "data: "...)
}

// AppendEnd ends an event.
func AppendEnd(b []byte) []byte { return append(b, "\n\n"...) }

// AppendRetry appends the advice to wait this long after the response has ended, and then to connect again.
func AppendRetry(b []byte, wait time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), wait.Milliseconds(), 10), "\n\n"...)
}
