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

// options are what the command line says.
type options struct {
	rows     []string
	all      bool
	quick    bool
	rounds   int
	duration time.Duration // of one measurement, whole seconds
	users    int
	many     int // users where the number of users is what is measured
	threads  int // of wrk
	timeout  time.Duration
	write    string // file to write the report into
	root     string // of the project
	dir      string // for temporary files
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var rows string
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&rows, "rows", "", "measure these rows of the table only, as in 0,1,4; also those that are left out by default")
	set.BoolVar(&o.all, "all", false, "measure all rows, the soak of five minutes included")
	set.BoolVar(&o.quick, "quick", false, "see that everything works: 2 rounds of 1 s, a tenth of the users; the numbers mean little")
	set.IntVar(&o.rounds, "rounds", 5, "rounds in which contestants take turns")
	set.DurationVar(&o.duration, "duration", 2*time.Second, "of one measurement, in whole seconds")
	set.IntVar(&o.users, "users", 1_000_000, "users in every namespace")
	set.IntVar(&o.many, "many", 5_000_000, "users where their number is what is measured")
	set.IntVar(&o.threads, "threads", 2, "of wrk")
	set.DurationVar(&o.timeout, "timeout", 40*time.Minute, "give up after so long")
	set.StringVar(&o.write, "write", "", "file to write the report into, between its markers")
	set.StringVar(&o.root, "root", "..", "where the project is")
	set.StringVar(&o.dir, "dir", os.TempDir(), "where temporary files go; row 15 needs a disk there, not memory")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.rounds, o.duration, o.users, o.many = 2, time.Second, o.users/10, o.many/10
	}
	if rows != "" {
		o.rows = strings.Split(rows, ",")
	}
	if err := o.validate(set.Args()); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return o, err
	}
	return o, nil
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag", rest[0])
	case o.duration < time.Second || o.duration%time.Second != 0:
		return errors.New("-duration is in whole seconds, at least 1s")
	case o.rounds < 1 || o.threads < 1:
		return errors.New("-rounds and -threads are at least 1")
	case o.users < 20_000 || o.many < o.users:
		return errors.New("-users is at least 20000, and -many at least -users")
	}
	return nil
}
