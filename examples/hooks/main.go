// Command hooks is an example: a receiver of webhooks that mails users who have been grey for five minutes that they
// missed a message. The five minutes are the hold of the webhook, which docs/webhooks.md shows. Run it with
//
//	go run ./examples/hooks -secret-file hook -smtp localhost:25
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/mail"
	"net/smtp"
	"os"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// event is what the receiver needs of an event.
type event struct {
	Type string
	Data struct {
		Users []struct{ User, Status string }
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	secret := flag.String("secret-file", "hook", "file with the secret of the webhook")
	server := flag.String("smtp", "localhost:25", "mail server")
	domain := flag.String("domain", "example.com", "users have addresses of this domain")
	flag.Parse()
	text, err := os.ReadFile(*secret)
	if err != nil {
		return err
	}
	hook, err := standardwebhooks.NewWebhook(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log.Printf("receiving at http://%s/", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var e event
		if err != nil || hook.Verify(body, r.Header) != nil || json.Unmarshal(body, &e) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, u := range e.Data.Users {
			if e.Type != "presence.changed" || u.Status != "grey" {
				continue // who comes back, or was gone before the receiver began
			}
			if err := remind(*server, *domain, u.User); err != nil {
				log.Print(err)
				w.WriteHeader(http.StatusServiceUnavailable) // lastseen sends the event again
				return
			}
		}
	}))
}

// remind mails a user. It would first look whether there are messages to read.
func remind(server, domain, user string) error {
	to, err := mail.ParseAddress(user + "@" + domain)
	if err != nil {
		log.Printf("%q has no address", user)
		return nil // a user's ID can be any text, and to try again does not help
	}
	text := fmt.Sprintf("From: chat@%s\r\nTo: %s\r\nSubject: You missed a message\r\n\r\nSee you!\r\n", domain, to)
	return smtp.SendMail(server, nil, "chat@"+domain, []string{to.Address}, []byte(text))
}
