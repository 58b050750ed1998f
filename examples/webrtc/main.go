// Command webrtc is an example: a page whose users call each other with video, by WebRTC. lastseen has the state of the
// calls and passes the offer and the answer along; the media go from browser to browser. It starts a lastseen server
// with short times, so that unanswered calls are missed while you watch. Run it with
//
//	go run ./examples/webrtc
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

//go:embed page
var files embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	err := example().Run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "webrtc: %v\n", err)
		os.Exit(1)
	}
}

// example returns the page. All that it does is in its script.
func example() demo.Demo {
	return demo.Demo{
		Name: "webrtc", Title: "video call", Listen: "127.0.0.1:8091", Settings: []string{"--ring-timeout", "20s"},
		Handler: func(_ context.Context, presence string, _ io.Writer) (http.Handler, error) {
			pages, err := fs.Sub(files, "page")
			return demo.Page(pages, presence), err
		},
	}
}
