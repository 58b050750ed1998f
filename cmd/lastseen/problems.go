package main

import (
	"fmt"
	"strings"
)

// settingsError says what is wrong with settings: everything, not only the first.
type settingsError struct{ problems []string }

// Error returns one line, or a line a problem below a heading.
func (e *settingsError) Error() string {
	if len(e.problems) == 1 {
		return e.problems[0]
	}
	return fmt.Sprintf("%d errors in the settings:\n  %s", len(e.problems), strings.Join(e.problems, "\n  "))
}

// problems collects what is wrong.
type problems struct{ list []string }

func (p *problems) addf(format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// err returns nil if nothing is wrong.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &settingsError{p.list}
}

// origin is where a value comes from.
type origin struct {
	kind originKind
	at   string // the flag, the environment variable, or file:line
}

type originKind string

const (
	fromDefault originKind = "default"
	fromFlag    originKind = "flag"
	fromEnv     originKind = "env"
	fromFile    originKind = "file"
)

// String is for people: "default", "flag --green", "env LASTSEEN_GREEN" or "lastseen.yaml:3".
func (o origin) String() string {
	switch o.kind {
	case fromDefault:
		return string(fromDefault)
	case fromFile:
		return o.at
	default:
		return string(o.kind) + " " + o.at
	}
}

// begin begins a message about a setting: flags and environment variables name it, places in a file do
// not.
func (o origin) begin(path string) string {
	switch o.kind {
	case fromDefault:
		return path
	case fromFile:
		return o.at + ": " + path
	default:
		return o.at
	}
}
