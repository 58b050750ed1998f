package config

import (
	"fmt"
	"strings"
)

// Error collects everything that is wrong with settings, not only the first problem.
type Error struct{ Problems []string }

// Error returns one line, or a heading and a line for each problem.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return fmt.Sprintf("%d errors in the settings:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}

// Addf adds a problem.
func (e *Error) Addf(format string, args ...any) {
	e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
}

// Err returns the error, or nil without problems.
func (e *Error) Err() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}
