// Command lastseen is a presence service: it records pings over HTTP and answers who is here, who was
// here recently, and since when.
//
// Started without arguments it listens on 127.0.0.1:8080 and keeps its data in the file lastseen.db.
// Run it with --help for all settings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lastseen/lastseen/store/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// streams are where commands write.
type streams struct {
	out, err io.Writer
}

// run executes one command line and returns the exit code: 0 if it did what was asked, 1 if that
// failed, 2 if the command line or a setting is wrong.
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
	line, err := newCommandLine(ctx, streams{stdout, stderr})
	if err != nil {
		return fail(stderr, err, 1)
	}
	parsed, err := line.Parse(args)
	if err != nil {
		return fail(stderr, withoutPasswords(unknownCommand(err, args, line.Model.Children), args), 2)
	}
	if err := parsed.Run(); err != nil {
		var wrong *settingsError
		if errors.As(err, &wrong) {
			return fail(stderr, err, 2)
		}
		return fail(stderr, err, 1)
	}
	return 0
}

// withoutPasswords is an error about arguments that shows none of their passwords: a store may stand where no
// flag names it.
func withoutPasswords(err error, args []string) error {
	text := err.Error()
	for _, arg := range args {
		if isStoreURL(arg) {
			text = strings.ReplaceAll(text, arg, redisstore.Redact(arg))
		}
	}
	return errors.New(text)
}

func fail(stderr io.Writer, err error, code int) int {
	fmt.Fprintf(stderr, "lastseen: %v\n", err)
	return code
}
