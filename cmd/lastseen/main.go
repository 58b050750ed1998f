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
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands is the command line.
type commands struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Run the service (the default)."`
	Health  healthCmd  `cmd:"" help:"Ask a running service whether it is alive; for container health checks."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// streams are where commands write.
type streams struct {
	out, err io.Writer
}

// exitCode ends run from inside the parser, after it has printed the help.
type exitCode int

// run executes one command line and returns the exit code: 0 if it did what was asked, 1 if that
// failed, 2 if the command line or a setting is wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if exit, ok := recover().(exitCode); ok {
			code = int(exit)
		}
	}()
	var c commands
	parser, err := kong.New(&c,
		kong.Name("lastseen"),
		kong.Description("A presence service: who is here, and who was here recently.\n\nEvery flag can also be given as an environment variable; the flag wins."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.DefaultEnvars("LASTSEEN"),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams{stdout, stderr}),
	)
	if err != nil {
		return fail(stderr, err, 1)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return fail(stderr, err, 2)
	}
	if err := parsed.Run(); err != nil {
		var wrong *settingError
		if errors.As(err, &wrong) {
			return fail(stderr, err, 2)
		}
		return fail(stderr, err, 1)
	}
	return 0
}

func fail(stderr io.Writer, err error, code int) int {
	fmt.Fprintf(stderr, "lastseen: %v\n", err)
	return code
}
