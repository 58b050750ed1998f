// Command chat is an example: a chat page with a presence dot at each avatar. It starts a lastseen server with short
// thresholds and simulates users who come, go idle, lose their network and leave, so that statuses change while you
// watch. Run it with
//
//	go run ./examples/chat
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

func main() {
	os.Exit(demo.Demo{Name: "chat", Title: "chat", Listen: "127.0.0.1:8090", Handler: chat}.Main())
}

// chat returns the handler of the page, and simulates users until the context ends.
func chat(ctx context.Context, url string, out io.Writer) http.Handler {
	names := []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"}
	people, room := newCrowd(names, rand.New(rand.NewPCG(rand.Uint64(), 0))), newRoom(names...)
	go simulate(ctx, people, presence(url+"/v1/namespaces/chat"), room, out)
	return newSite(url, room)
}

// simulate lets the people act until the context ends.
func simulate(ctx context.Context, people *crowd, p presence, room *room, out io.Writer) {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for failing := false; ; {
		did := people.act(time.Now())
		room.post(did.messages...)
		err := p.report(ctx, did)
		if err != nil && !failing && ctx.Err() == nil {
			fmt.Fprintf(out, "The lastseen server does not record the simulated users: %v\n", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
