// Command chat is an example: a chat page with a presence dot at each avatar. It starts a lastseen server with short
// thresholds and simulates users who come, go idle, lose their network and leave, so that statuses change while you
// watch. Run it with
//
//	go run ./examples/chat
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chat: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct{ listen, url, program string }

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8090", "`address` of the chat page")
	flags.StringVar(&o.url, "url", "",
		"`URL` of a lastseen server that runs already, needs no credentials, and allows the page in cors-origins; "+
			"default: start one")
	flags.StringVar(&o.program, "lastseen", "", "lastseen `program` to start; default: build it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	return o, nil
}

// run serves the chat until the context ends, or the lastseen server that it started does.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if o.url != "" {
		return chat(ctx, listener, presence{strings.TrimSuffix(o.url, "/"), http.DefaultClient}, out)
	}
	if o.program == "" {
		fmt.Fprintln(out, "Building lastseen. The first time, this can take some minutes.")
	}
	s, err := startServer(ctx, o.program, origins(listener.Addr()))
	if err != nil {
		return err
	}
	defer s.stop()
	running, cancel := s.whileRunning(ctx)
	defer cancel()
	err = chat(running, listener, presence{s.url, http.DefaultClient}, out)
	if ctx.Err() == nil && running.Err() != nil {
		return fmt.Errorf("lastseen has ended:\n%s", &s.log)
	}
	return err
}

// chat serves the page and simulates users until the context ends.
func chat(ctx context.Context, listener net.Listener, p presence, out io.Writer) error {
	settings, err := p.settings(ctx)
	if err != nil {
		return err
	}
	people := newCrowd(settings, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	room := newRoom(people.names())
	server := &http.Server{
		Handler:           newSite(p.url, room),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // so that event streams end
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go simulate(ctx, people, p, room, out)
	fmt.Fprintf(out, "The chat is at http://%s/ and its lastseen server at %s/. Stop it with Ctrl-C.\n",
		listener.Addr(), p.url)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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
