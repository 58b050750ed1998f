// Command bench compares lastseen with the software that it is built on and with alternatives, on the same machine in
// the same minutes. README.md describes how to run it and how to read the results.
//
// It starts all servers as processes on loopback, so that the CPU time of each can be read, and stops them at the end.
//
// comparisons.go is the table of what is compared, with the targets, and workloads.go lists what is measured for it.
// runner.go runs the rounds. fixture.go, process.go and serve.go start and fill servers; proc.go reads what they cost.
// wrk.go, redisbenchmark.go, bulk.go, serial.go and openloop.go generate load; footprint.go and disk.go measure memory
// and disk. feeds.go, turnyellow.go, delivery.go, readers.go and quiet.go measure changes feeds, details.go
// availability, calls.go and ringing.go calls between users. before.go compares versions. report.go prints and writes
// the results.
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
	context.AfterFunc(ctx, stop) // the first signal stops the servers; a second one ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code: 0 if everything was measured, whether or not it met its
// target; 1 if something was not; 2 if the command line is invalid.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) > 0 && args[0] == "serve": // hidden: the servers that are measured
		err = serve(ctx, args[1:])
	case len(args) > 0 && args[0] == "hold": // hidden: clients that hold connections
		err = hold(ctx, args[1:], stdout)
	default:
		o, invalid := parseOptions(args, stderr)
		if invalid != nil {
			return 2
		}
		err = benchmark(ctx, o, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// benchmark measures the requested rows and reports the results.
func benchmark(ctx context.Context, o options, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("the run took longer than %s", o.timeout))
	defer cancel()
	chosen, err := choose(comparisons(), o.rows)
	if err != nil {
		return err
	}
	f, err := newFixture(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer f.close()
	results := runAll(ctx, f, chosen)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := report{options: o, environment: environment(ctx), results: results, servers: f.commands()}
	page := r.markdown()
	_, _ = stdout.Write(page)
	if o.write != "" {
		if err := os.WriteFile(o.write, page, 0o644); err != nil {
			return err
		}
	}
	return results.err()
}
