package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
)

// readers follow changes feeds over Server-Sent Events, each some users.
type readers struct {
	connections []net.Conn
	open        atomic.Int64 // connections that the server has not ended
	current     atomic.Int64 // those that got their first presences

	mu       sync.Mutex
	lags     []time.Duration // from each change to its arrival, since take
	watching []uint16        // how many readers watch each user
}

// connectAll connects readers to servers in turn, and waits until each has the first presences of its users. The i-th
// reader reads what path returns for i.
func (r *readers) connectAll(ctx context.Context, urls []string, n int, path func(i int) string) error {
	r.connections = make([]net.Conn, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range n {
		group.Go(func() (err error) {
			r.connections[i], err = r.connect(groupCtx, urls[i%len(urls)], path(i))
			return err
		})
	}
	err := group.Wait()
	for deadline := time.Now().Add(time.Minute); err == nil && r.current.Load() < int64(n); {
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d of %d readers got their first presences", r.current.Load(), n)
		}
		if err == nil {
			err = pause(ctx, 50*time.Millisecond)
		}
	}
	if err != nil {
		r.close()
	}
	return err
}

// close ends all connections.
func (r *readers) close() {
	for _, c := range r.connections {
		if c != nil {
			_ = c.Close() // it is not used any more
		}
	}
}

// connect sends the request of one reader, and reads the response in the background. It does not use net/http, which
// takes several times the memory and the CPU time.
func (r *readers) connect(ctx context.Context, url, path string) (net.Conn, error) {
	var dialer net.Dialer
	host := strings.TrimPrefix(url, "http://")
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", path, host)
	if err != nil {
		return conn, err
	}
	buffered := bufio.NewReaderSize(conn, 1024)
	status, header, err := readHead(buffered)
	switch {
	case err != nil:
		return conn, err
	case status != "HTTP/1.1 200 OK" || header.Get("Transfer-Encoding") != "chunked":
		rest := make([]byte, 300)
		n, _ := buffered.Read(rest) // for the message only
		return conn, fmt.Errorf("GET %.80s: %s %s", path, status, rest[:n])
	}
	r.open.Add(1)
	go r.read(bufio.NewReaderSize(httputil.NewChunkedReader(buffered), 1024))
	return conn, nil
}

func readHead(b *bufio.Reader) (status string, header textproto.MIMEHeader, err error) {
	head := textproto.NewReader(b)
	if status, err = head.ReadLine(); err == nil {
		header, err = head.ReadMIMEHeader()
	}
	return status, header, err
}

// read notes how late each change arrives, until the stream ends. The first presences are no changes.
func (r *readers) read(stream *bufio.Reader) {
	defer r.open.Add(-1)
	name, current := "", false
	for {
		line, err := stream.ReadSlice('\n')
		for err == bufio.ErrBufferFull { //nolint:errorlint // the error itself, as documented
			line = bytes.Clone(line)
			var more []byte
			more, err = stream.ReadSlice('\n')
			line = append(line, more...)
		}
		if err != nil {
			return
		}
		if value, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(bytes.TrimSpace(value))
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case !ok || name != "changes":
		case current:
			r.note(data, time.Now())
		case bytes.Contains(data, []byte(`"more":false`)):
			current = true
			r.current.Add(1)
		}
	}
}

// note notes the lags of an event. A change of these workloads is a ping or a leave, so it happened when its user was
// last seen.
func (r *readers) note(data []byte, received time.Time) {
	for {
		_, rest, ok := bytes.Cut(data, []byte(`"last_seen":"`))
		if !ok {
			return
		}
		text, after, _ := bytes.Cut(rest, []byte(`"`))
		data = after
		if at, err := lastseen.ParseTime(string(text)); err == nil {
			r.mu.Lock()
			r.lags = append(r.lags, received.Sub(time.UnixMilli(int64(at))))
			r.mu.Unlock()
		}
	}
}

// take returns the lags since the last call.
func (r *readers) take() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	lags := r.lags
	r.lags = nil
	return lags
}

// watch returns the path with which a reader follows random users, and counts that these are watched.
func (r *readers) watch(ids users, n int) string {
	var path strings.Builder
	path.WriteString(changesPath)
	for i := range n {
		place := rand.IntN(ids.len())
		r.mu.Lock()
		r.watching[place]++
		r.mu.Unlock()
		path.WriteString(map[bool]string{true: "?user=", false: "&user="}[i == 0] + ids.id(place))
	}
	return path.String()
}
