// Command avatars is an example: a service that shows pages of avatars, each with the dot of its user, as a forum or a
// helpdesk does. Many pages show the same users, so it asks lastseen through the cache of the client. Run it with
//
//	go run ./examples/avatars -lastseen http://127.0.0.1:8080
//
// and open http://127.0.0.1:8001/?user=alice&user=bob.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lastseen/lastseen/client"
)

// maxAvatars is how many users one page shows.
const maxAvatars = 100

//go:embed page.html
var html string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:8001", "address to listen on")
	server := flag.String("lastseen", "http://127.0.0.1:8080", "URL of lastseen")
	namespace := flag.String("namespace", "chat", "namespace of the users")
	flag.Parse()
	presence, err := client.New(*server, client.Options{Key: os.Getenv("LASTSEEN_API_KEY")})
	if err != nil {
		return err
	}
	page, err := template.New("").Parse(html)
	if err != nil {
		return err
	}
	avatars := presence.Cache(*namespace, client.CacheOptions{})
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log.Printf("showing avatars at http://%s/?user=alice&user=bob", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		users := r.URL.Query()["user"]
		if len(users) > maxAvatars {
			http.Error(w, "at most 100 users", http.StatusBadRequest)
			return
		}
		if err := page.Execute(w, look(r.Context(), avatars, users)); err != nil {
			log.Print(err)
		}
	}))
}

// look returns the users with their statuses, which are "unknown" if lastseen does not answer soon: a page must not
// fail because of its dots.
func look(ctx context.Context, avatars *client.Cache, users []string) []client.Presence {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	found, err := avatars.Lookup(ctx, users...)
	if err == nil {
		return found
	}
	log.Print(err)
	found = make([]client.Presence, len(users))
	for i, user := range users {
		found[i] = client.Presence{User: user, Status: "unknown"}
	}
	return found
}
