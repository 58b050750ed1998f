//go:build faults

package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// proxy is between servers and a Redis, and spoils what passes through it.
type proxy struct{ *toxiproxy.Proxy }

// startProxy starts a proxy to an address, until the test ends.
func startProxy(t testing.TB, upstream string) proxy {
	t.Helper()
	owner := &toxiproxy.ApiServer{
		Collection: toxiproxy.NewProxyCollection(), Metrics: toxiproxy.NewMetricsContainer(nil),
	}
	setNew(&owner.Logger) // the zero logger is silent
	p := toxiproxy.NewProxy(owner, "redis", "127.0.0.1:0", upstream)
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return proxy{p}
}

func setNew[T any](p **T) { *p = new(T) }

// url returns the address as a store URL.
func (p proxy) url() string { return "redis://" + p.Listen }

// spoil adds a toxic, such as timeout, to what the servers receive ("downstream") or send ("upstream"). The attributes
// are JSON.
func (p proxy) spoil(t testing.TB, toxic, stream, attributes string) {
	t.Helper()
	_, err := p.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":%s}`, toxic, stream, attributes)))
	require.NoError(t, err)
}

// heal removes all toxics. Connections that lost data do not recover.
func (p proxy) heal(t testing.TB) {
	t.Helper()
	p.Toxics.ResetToxics(t.Context())
}

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

// serve passes on what clients of a listener and a Sentinel send each other. A connection ends with its client.
func (l *link) serve(t testing.TB, listener net.Listener, sentinel string) {
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", sentinel)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			go func() {
				l.translate(client, server)
				client.Close()
			}()
		}
	}()
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

// startNginx starts the nginx of the deployment in front of servers, until the test ends, and returns it. It
// sends a request to another server if one refuses it, but does not avoid that one for 10 s, as it would by default.
func startNginx(t testing.TB, servers []*server) (front *server) {
	t.Helper()
	path := testenv.Program(t, "nginx", "nginx")
	config, err := os.ReadFile("../../deploy/nginx.conf")
	require.NoError(t, err)
	upstream := "http {\n    upstream lastseen {\n"
	for _, s := range servers {
		upstream += "        server " + strings.TrimPrefix(s.url, "http://") + " max_fails=0;\n"
	}
	listen, dir := redistest.FreeAddr(t, "127.0.0.1"), t.TempDir()
	text := string(config)
	for old, changed := range map[string]string{
		" /tmp/": " " + dir + "/", "listen 8080;": "listen " + listen + ";",
		"access_log /dev/stdout plain;": "access_log off;", "error_log stderr warn;": "error_log stderr crit;",
		"limit_conn address 512;":     "limit_conn address 50000;", // all clients of a test have one
		"set $servers lastseen:8080;": "set $servers lastseen;", "http {\n": upstream + "    }\n",
	} {
		require.Contains(t, text, old, "deploy/nginx.conf has changed")
		text = strings.ReplaceAll(text, old, changed)
	}
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := testenv.CommandUntil(syscall.SIGTERM, path, "-c", file, "-g", "daemon off;", "-e", "stderr")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	front = &server{url: "http://" + listen}
	await(t, "nginx to respond", front.healthy)
	return front
}
