package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"

	"github.com/centrifugal/centrifuge"
)

const (
	centrifugePath    = "/connection"
	centrifugeChannel = "chat"
	// memoryPath returns the memory in use as lastseen's metrics do.
	memoryPath = "/memory"
)

// centrifugeServer returns a server of the library of Centrifugo. Its clients are present in one channel, in memory.
func centrifugeServer(ctx context.Context) (http.Handler, error) {
	node, err := centrifuge.New(centrifuge.Config{LogLevel: centrifuge.LogLevelNone})
	if err != nil {
		return nil, err
	}
	node.OnConnecting(func(_ context.Context, e centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{
			Credentials:   &centrifuge.Credentials{UserID: e.Name},
			Subscriptions: map[string]centrifuge.SubscribeOptions{centrifugeChannel: {EmitPresence: true}},
		}, nil
	})
	if err := node.Run(); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = node.Shutdown(context.Background()) }) // the process ends then
	mux := http.NewServeMux()
	mux.Handle(centrifugePath, centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		ReadBufferSize: 512, WriteBufferSize: 512, UseWriteBufferPool: true,
	}))
	mux.HandleFunc(memoryPath, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 { // until stacks have shrunk
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		presence, err := node.PresenceStats(centrifugeChannel)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "# %d clients present\n%s %d\n%s %d\n", presence.NumClients,
			heapMetric, m.HeapInuse, stackMetric, m.StackInuse)
	})
	return mux, nil
}
