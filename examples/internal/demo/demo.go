// Package demo has what the examples share: their flags, a lastseen server that they start, and a web server for their
// page. It imports nothing of this project.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Demo is an example.
type Demo struct {
	Name     string   // of the program
	Title    string   // what it has a page of, such as "chat"
	Listen   string   // default address of the page
	Settings []string // flags of the lastseen server, besides those of all examples
	// Handler returns what serves the page. It is called once, with the URL of a lastseen server that is ready. What it
	// starts ends with the context.
	Handler func(ctx context.Context, presence string, out io.Writer) http.Handler
}

// Main runs the example with the command's arguments, until the process is asked to end, and returns the process's exit
// status.
func (d Demo) Main() (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	err := d.Run(ctx, os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", d.Name, err)
	return 1
}

// Run serves the page until the context ends, or the lastseen server does, which is an error. After -h or --help it
// returns flag.ErrHelp.
func (d Demo) Run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	listen := flags.String("listen", d.Listen, "`address` of the page")
	program := flags.String("lastseen", "", "lastseen `program` to start; default: build it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	dir, err := os.MkdirTemp("", "lastseen-example-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *program == "" {
		fmt.Fprintln(out, "Building lastseen. The first time, this can take some minutes.")
		*program = filepath.Join(dir, "lastseen")
		build := exec.CommandContext(ctx, "go", "build", "-o", *program, "github.com/lastseen/lastseen/cmd/lastseen")
		if log, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building lastseen: %w\n%s", err, log)
		}
	}
	origins := "http://localhost:*,http://127.0.0.1:*,http://" + listener.Addr().String()
	return withServer(ctx, *program, dir, append(d.Settings, "--cors-origins", origins),
		func(ctx context.Context, presence string) error { return d.serve(ctx, listener, presence, out) })
}

// serve serves the page until the context ends.
func (d Demo) serve(ctx context.Context, listener net.Listener, presence string, out io.Writer) error {
	server := &http.Server{
		Handler:           d.Handler(ctx, presence, out),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // so that event streams end
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(out, "The %s is at http://%s/ and its lastseen server at %s/. Stop it with Ctrl-C.\n",
		d.Title, listener.Addr(), presence)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
