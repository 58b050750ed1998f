// Command lastseen is a presence service: it records pings over HTTP and shows who is online, who was online
// recently, and when they were last seen.
//
// Without arguments it listens on 127.0.0.1:8080 and stores its data in the file lastseen.db.
// Run it with --help for all settings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code: 0 for success, 1 for a failure, 2 if the command line or a
// setting is wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case exitCode:
			code = int(cause)
		default:
			panic(cause)
		}
	}()
	line, err := newCommandLine(ctx, cli.Streams{Out: stdout, Err: stderr})
	if err != nil {
		return fail(stderr, err, 1)
	}
	kongcompletion.Register(line) // ends here when a shell asks
	parsed, err := line.Parse(args)
	if err != nil {
		return fail(stderr, redact(unknownCommand(err, args, line.Model.Children), args), 2)
	}
	if err := parsed.Run(); err != nil {
		if _, wrong := errors.AsType[*config.Error](err); wrong {
			return fail(stderr, err, 2)
		}
		return fail(stderr, err, 1)
	}
	return 0
}

// redact returns an error about arguments without their passwords: a user may pass a store without its flag.
func redact(err error, args []string) error {
	text := err.Error()
	for _, arg := range args {
		if config.IsStoreURL(arg) {
			text = strings.ReplaceAll(text, arg, redisstore.Redact(arg))
		}
	}
	return errors.New(text)
}

func fail(stderr io.Writer, err error, code int) int {
	fmt.Fprintf(stderr, "lastseen: %s\n", cli.Message(err))
	return code
}

// newLogger returns a logger that writes lines as text, or one JSON object per line.
func newLogger(format string, w io.Writer, level *slog.LevelVar) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
