package apitest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
)

// Dial connects to the server, for requests that Go's client would send differently.
func (w *Server) Dial() net.Conn {
	w.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.T, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// Exchange sends bytes unchanged and returns all responses until the connection ends. The server may end it before
// it has read everything.
func (w *Server) Exchange(raw string) (responses []kit.Response) {
	w.T.Helper()
	conn := w.Dial()
	go io.WriteString(conn, raw)
	from := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(from, nil) //nolint:bodyclose // TryResponseOf does it
		if err != nil {
			return responses
		}
		if r, _ := kit.TryResponseOf(response); r.Status != http.StatusContinue { // with what there is of the body
			responses = append(responses, r)
		}
	}
}

// Exchanges sends a request whose headers do not end yet, and returns its only response.
func (w *Server) Exchanges(request string) kit.Response {
	w.T.Helper()
	responses := w.Exchange(request + "Connection: close\r\n\r\n")
	require.Len(w.T, responses, 1, "%.100q", request)
	return responses[0]
}

// Upload starts an upload.
func (w *Server) Upload(headers ...string) kit.Upload {
	w.T.Helper()
	reader, writer := io.Pipe()
	w.T.Cleanup(func() { _ = writer.Close() })
	request, err := http.NewRequestWithContext(context.Background(), "POST", w.URL+"/v1/namespaces/chat/pings", reader)
	require.NoError(w.T, err)
	kit.AddHeaders(request.Header, append(headers, kit.NDJSON))
	s := kit.Upload{PipeWriter: writer, Response: make(chan kit.Response, 1)}
	go func() {
		response, err := http.DefaultClient.Do(request) //nolint:bodyclose // TryResponseOf does it
		if err != nil {
			s.Response <- kit.Response{Body: err.Error()}
			return
		}
		r, _ := kit.TryResponseOf(response)
		s.Response <- r
	}()
	return s
}

// Stored returns how many users the store has in the namespace chat.
func (w *Server) Stored() int64 {
	w.T.Helper()
	counts, err := w.Store.Count(w.T.Context(), "chat", []lastseen.Range{{From: 1, To: kit.Now + kit.MaxAhead}})
	require.NoError(w.T, err)
	return counts[0]
}
