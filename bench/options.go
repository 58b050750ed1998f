package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// options are the settings on the command line.
type options struct {
	rows     []string
	quick    bool
	rounds   int
	duration time.Duration // of one measurement, whole seconds
	users    int
	many     int // users where their number is compared
	calls    int // that go on in row 31
	timeout  time.Duration
	write    string // file to write the report to
	dir      string // for temporary files
	before   string // commit that this version is compared with
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(stderr)
	const rows = "measure only these rows, as in 0,1,4; required for rows 17, 18 and 23 to 31"
	set.Func("rows", rows, func(rows string) error {
		o.rows = strings.Split(rows, ",")
		return nil
	})
	set.BoolVar(&o.quick, "quick", false, "check that everything works: 2 rounds of 1 s with a tenth of the users")
	set.IntVar(&o.rounds, "rounds", 5, "number of times to measure each workload, in turns")
	set.DurationVar(&o.duration, "duration", 2*time.Second, "duration of one measurement, in whole seconds")
	set.IntVar(&o.users, "users", 1_000_000, "users in each namespace")
	set.IntVar(&o.many, "many", 5_000_000, "users where their number is compared")
	const calls = "ongoing calls in row 31; two connections each, and a server for 18,000 connections"
	set.IntVar(&o.calls, "calls", 22_500, calls)
	set.DurationVar(&o.timeout, "timeout", 40*time.Minute, "give up after this time")
	set.StringVar(&o.write, "write", "", "also write the report to this file, as Markdown")
	set.StringVar(&o.before, "before", "", "commit that rows 23 and 28 compare this version with")
	set.StringVar(&o.dir, "dir", os.TempDir(), "folder for temporary files; row 15 needs a disk there, not memory")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.rounds, o.duration, o.users, o.many = 2, time.Second, o.users/10, o.many/10
	}
	err := o.validate(set.Args())
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
	}
	return o, err
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is not a flag", rest[0])
	case o.duration < time.Second || o.duration%time.Second != 0:
		return errors.New("-duration must be whole seconds, 1s or more")
	case o.calls < 10:
		return errors.New("-calls must be 10 or more")
	case o.rounds < 1:
		return errors.New("-rounds must be 1 or more")
	case o.users < 2*fewUsers || o.many < o.users:
		return fmt.Errorf("-users must be %d or more, and -many not less than -users", 2*fewUsers)
	}
	return nil
}
