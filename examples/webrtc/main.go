// Command webrtc is an example: a page whose users call each other with video, by WebRTC. lastseen has the state of the
// calls and passes the offer and the answer along; the media go from browser to browser. It starts a lastseen server
// with short times, so that unanswered calls are missed while you watch. Run it with
//
//	go run ./examples/webrtc
package main

import (
	"context"
	"embed"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

//go:embed page
var files embed.FS

// All that the page does is in its script.
func main() {
	os.Exit(demo.Demo{
		Name: "webrtc", Title: "video call", Listen: "127.0.0.1:8091", Settings: []string{"--ring-timeout", "20s"},
		Handler: func(_ context.Context, presence string, _ io.Writer) http.Handler {
			pages, _ := fs.Sub(files, "page") // a valid name, the only condition
			return demo.Page(pages, presence)
		},
	}.Main())
}
