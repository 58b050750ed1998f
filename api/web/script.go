package web

import (
	"bytes"
	"fmt"
)

// fragments are the files in the folder lastseen that lastseen.js is made of, in this order: one module, in files of
// one job each. They share one scope, so that they have no imports, and only the last one has exports.
func fragments() []string {
	return []string{
		"clock", "http", "socket", "connection", "pinger", "states", "poller", "leader", "client",
		"elements",
		"exports",
	}
}

// script returns the fragments as one module, without comments.
func script() ([]byte, error) {
	var module []byte
	for _, name := range fragments() {
		fragment, err := files.ReadFile("lastseen/" + name + ".js")
		if err != nil {
			return nil, fmt.Errorf("lastseen.js: %w", err)
		}
		module = append(module, withoutComments(fragment)...)
	}
	return module, nil
}

// withoutComments returns JavaScript without the lines that are only a comment. A line of a template literal must not
// look like one.
func withoutComments(source []byte) []byte {
	var code []byte
	for line := range bytes.Lines(source) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
			code = append(code, line...)
		}
	}
	return code
}
