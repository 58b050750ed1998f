// Command bench measures lastseen against what it stands on and against what a user would run instead,
// and judges by ratios within one run. docs/performance.md says how to read what it prints.
//
// It starts everything it needs on loopback, as processes of their own whose CPU time can be told
// apart, and ends what it started.
//
// Where things are: experiments.go is the table of what is judged, by which target; contestants.go what
// is measured for it; runner.go the rounds; lab.go, process.go and serve.go what runs, proc.go what it
// costs; wrk.go, redisbenchmark.go, bulk.go, serial.go and openloop.go put it under load; footprint.go
// measures memory and disk; report.go prints and writes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends the process at once, and the kernel
	// what it started.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code: 0 if everything could be measured, whether
// or not targets were met; 1 if something could not; 2 if the command line is wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "serve" { // hidden: the servers that are measured
		return exit(stderr, serve(ctx, args[1:], stdout))
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return 2
	}
	return exit(stderr, benchmark(ctx, o, stdout, stderr))
}

func exit(stderr io.Writer, err error) int {
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// benchmark measures the rows that the options choose, prints what was found, and writes it.
func benchmark(ctx context.Context, o options, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("the run took longer than %s", o.timeout))
	defer cancel()
	chosen, err := choose(experiments(), o)
	if err != nil {
		return err
	}
	l, err := newLab(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer l.close()
	results := runAll(ctx, l, chosen)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := report{options: o, environment: describe(ctx), results: results, servers: l.servers.commands()}
	r.print(stdout)
	if o.write != "" {
		if err := r.write(o.write); err != nil {
			return err
		}
	}
	return results.err()
}
