package web

import (
	"bytes"
	"crypto/sha256"
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

// minified is the file with the module as people download it, which `make generate` writes. Its first line is a comment
// with the hash of its source.
const minified = "lastseen.min.js"

// script returns lastseen.js: minified, or its source if that has changed since, so that a change can be tried at once.
func script() ([]byte, error) {
	source, err := scriptSource()
	if err != nil {
		return nil, err
	}
	small, err := files.ReadFile(minified)
	if err != nil {
		return nil, err
	}
	if code, current := bytes.CutPrefix(small, sourceLine(source)); current {
		return code, nil
	}
	return source, nil
}

// scriptSource returns the fragments as one module.
func scriptSource() ([]byte, error) {
	var module []byte
	for _, name := range fragments() {
		fragment, err := files.ReadFile("lastseen/" + name + ".js")
		if err != nil {
			return nil, fmt.Errorf("lastseen.js: %w", err)
		}
		module = append(module, fragment...)
	}
	return module, nil
}

// sourceLine returns the first line of the minified module.
func sourceLine(source []byte) []byte {
	return fmt.Appendf(nil, "// Generated from %x\n", sha256.Sum256(source))
}
