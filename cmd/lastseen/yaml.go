package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileSize is how long a file of the configuration may be, in bytes; a device has no end.
const maxFileSize = 16 << 20

// parse returns the file's root, or nil if it is empty.
func (r *fileReader) parse() (*yaml.Node, error) {
	content, err := readFile(r.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", r.named.at, r.name, err)
	}
	document, second, err := decode(content)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %s", r.name, brokenLine(content, err), syntaxMessage(err))
	case !second.IsZero():
		return nil, fmt.Errorf("%s:%d: the file holds a second YAML document: only one is allowed", r.name, max(1, second.Line))
	case len(document.Content) == 0 || isNull(document.Content[0]):
		return nil, nil
	}
	return document.Content[0], nil
}

// decode returns the first document and the one after it, each empty if there is none.
func decode(content []byte) (document, second yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err = decoder.Decode(&document); err == nil {
		err = decoder.Decode(&second)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return document, second, err
}

// syntaxPrefix is what the messages of the YAML library begin with.
var syntaxPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxMessage says what is wrong with YAML, and for the commonest slip, namespaces: [*], also what to do.
func syntaxMessage(err error) string {
	message := syntaxPrefix.ReplaceAllString(err.Error(), "")
	if strings.Contains(message, "alphabetic or numeric character") {
		message += " after * or &: put values that start with * in quotes"
	}
	return message
}

// brokenLine returns the first line with which the content has the error. The library's own number is often
// that of an earlier line, where a block began that could have gone on, or there is none.
func brokenLine(content []byte, whole error) int {
	lines := bytes.SplitAfter(content, []byte("\n"))
	return 1 + sort.Search(len(lines)-1, func(n int) bool {
		_, _, err := decode(bytes.Join(lines[:n+1], nil))
		return err != nil && err.Error() == whole.Error()
	})
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err == nil {
		defer file.Close()
		var content []byte
		content, err = io.ReadAll(io.LimitReader(file, maxFileSize+1))
		if err == nil && len(content) > maxFileSize {
			err = errors.New("is too large: the maximum is 16 MiB")
		}
		if err == nil {
			return content, nil
		}
	}
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err // without the name, which begins the message
	}
	return nil, err
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case isNull(n):
		return "nothing"
	default:
		return "a single value"
	}
}
