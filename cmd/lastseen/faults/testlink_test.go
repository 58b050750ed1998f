//go:build faults

package faults

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// link is what one server sees of a Redis with Sentinels: each Redis is behind a proxy, and the Sentinels give the
// addresses of the proxies.
type link struct {
	proxies   []proxy
	sentinels []string
	ports     *strings.Replacer // a port for each real one, as long as it: all have five digits
}

// startLink starts the proxies, until the test ends.
func startLink(t testing.TB, watched *redistest.Sentinel) *link {
	t.Helper()
	l := &link{}
	var ports []string
	for _, node := range watched.Nodes {
		p := startProxy(t, node.Addr)
		l.proxies = append(l.proxies, p)
		ports = append(ports, port(t, node.Addr), port(t, p.Listen))
	}
	var listeners []net.Listener
	for _, sentinel := range watched.Sentinels {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, listener)
		l.sentinels = append(l.sentinels, listener.Addr().String())
		ports = append(ports, port(t, sentinel.Addr), port(t, listener.Addr().String()))
	}
	l.ports = strings.NewReplacer(ports...)
	for i, sentinel := range watched.Sentinels {
		l.serve(t, listeners[i], sentinel.Addr)
	}
	return l
}

func port(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.Len(t, port, 5)
	return port
}

// url returns the Sentinels as a store URL.
func (l *link) url() string {
	return "redis+sentinel://" + strings.Join(l.sentinels, ",") + "?master=" + redistest.MasterName
}

// serve connects clients of a listener with a Sentinel, until the test ends.
func (l *link) serve(t testing.TB, listener net.Listener, sentinel string) {
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.connect(client, sentinel, stop) })
		}
	})
	t.Cleanup(func() {
		close(stop)
		listener.Close()
		running.Wait()
	})
}

// connect passes on what a client and a Sentinel send each other, until one of them closes its connection.
func (l *link) connect(client net.Conn, sentinel string, stop <-chan struct{}) {
	defer client.Close()
	server, err := net.Dial("tcp", sentinel)
	if err != nil {
		return
	}
	defer server.Close()
	var running sync.WaitGroup
	ended := make(chan struct{}, 2)
	running.Go(func() {
		_, _ = io.Copy(server, client)
		ended <- struct{}{}
	})
	running.Go(func() {
		l.translate(client, server)
		ended <- struct{}{}
	})
	select {
	case <-ended:
	case <-stop:
	}
	client.Close()
	server.Close()
	running.Wait()
}

// translate passes on replies with other ports. A port is never split: a line of a reply has all of it.
func (l *link) translate(client io.Writer, server io.Reader) {
	lines := bufio.NewReader(server)
	for {
		line, err := lines.ReadString('\n')
		if _, writeErr := io.WriteString(client, l.ports.Replace(line)); err != nil || writeErr != nil {
			return
		}
	}
}

// spoil adds a toxic to all connections with Redis: see [proxy.spoil].
func (l *link) spoil(t testing.TB, toxic, stream, attributes string) {
	t.Helper()
	for _, p := range l.proxies {
		p.spoil(t, toxic, stream, attributes)
	}
}

func (l *link) heal(t testing.TB) {
	t.Helper()
	for _, p := range l.proxies {
		p.heal(t)
	}
}
