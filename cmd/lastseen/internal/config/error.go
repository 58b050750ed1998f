package config

import (
	"fmt"
	"slices"
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

// Suggest returns ", did you mean …?" with the candidate closest to a mistyped name, or "" if none is close.
func Suggest(name string, candidates []string) string {
	best := slices.MinFunc(candidates, func(a, b string) int { return distance(name, a) - distance(name, b) })
	if distance(name, best) > 1+len(name)/3 {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance returns the number of bytes to insert, delete or replace to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
