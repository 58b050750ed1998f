package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// guided is an error in its guide, docs/errors.md.
type guided struct {
	code           string
	status         int
	title          string
	meaning        string
	remedy, repeat string // what to do, and whether to try again
}

var section = regexp.MustCompile(
	`\n## (\w+)\n\n\*\*(\d+) ([^*]+)\.\*\* (.+)\n\n- What to do: (.+)\n- Try again\? (.+)\n`)

// readErrors returns the errors in the guide below root. A test compares them with package problem.
func readErrors(root string) (errors []guided, err error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	for _, m := range section.FindAllStringSubmatch(string(text), -1) {
		status, _ := strconv.Atoi(m[2]) // which has digits
		errors = append(errors, guided{m[1], status, m[3], m[4], m[5], m[6]})
	}
	return errors, err
}
