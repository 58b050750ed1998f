package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest"
)

// BenchmarkConnect opens 2,000 connections of users who watch nothing, and reports what each takes in the heap and on
// stacks once it is idle. That includes the connection of the client, which is in the same process, and the records of
// the user and the device in the store.
func BenchmarkConnect(b *testing.B) {
	const clients = 2000
	s, err := filestore.Open(filestore.Options{Path: storetest.DataFile(b), Sync: time.Second})
	require.NoError(b, err)
	defer s.Close()
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
	registry := connections.New(connections.Options{Store: s, Settings: func(string) connections.Settings {
		return connections.Settings{Thresholds: thresholds, PingInterval: 30 * time.Second}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go registry.Run(ctx)
	config := Config{
		Store: s, Settings: Settings{Thresholds: thresholds, PingInterval: 30 * time.Second}, Connections: registry,
		Logger: slog.New(slog.DiscardHandler),
	}
	config.Shared = NewShared(config)
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(New(config), config.Logger)
	server.Listener = LimitConnections(server.Config, server.Listener, 3*clients, config.Logger, nil)
	server.Start()
	defer server.Close()
	for b.Loop() {
		before := taken()
		open := make([]net.Conn, clients)
		for i := range open {
			hello := fmt.Sprintf(`{"hello":{"user":"u%d","device":{"id":"tab-%08d","kind":"web"}}}`, i, i)
			open[i] = dialRaw(b, server.Listener.Addr().String(), hello)
		}
		require.Equal(b, clients, config.Shared.WebSockets())
		b.ReportMetric(float64(taken()-before)/clients, "B/conn")
		b.ReportMetric(float64(runtime.NumGoroutine())/clients, "goroutines/conn")
		for _, c := range open {
			require.NoError(b, c.Close())
		}
		for config.Shared.WebSockets() > 0 {
			runtime.Gosched()
		}
	}
}

// taken returns the bytes in the heap and on stacks.
func taken() uint64 {
	var m runtime.MemStats
	for range 4 { // stacks shrink step by step
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// dialRaw opens a WebSocket and says hello.
func dialRaw(b *testing.B, address, hello string) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(b, err)
	var buffer [1024]byte
	exchange := func(sent []byte, want string) {
		_, err := conn.Write(sent)
		require.NoError(b, err)
		n, err := conn.Read(buffer[:])
		require.NoError(b, err)
		require.Contains(b, string(buffer[:n]), want)
	}
	exchange([]byte("GET /v1/namespaces/chat/connect HTTP/1.1\r\nHost: localhost\r\n"+
		strings.Join(upgradeHeaders(), "\r\n")+"\r\n\r\n"), "HTTP/1.1 101 ")
	exchange(frame(fin|opText, hello), frameWelcome)
	return conn
}
