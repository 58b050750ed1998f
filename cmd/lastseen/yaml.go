package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileSize is how long a configuration file may be, in bytes; a device has no end.
const maxFileSize = 16 << 20

// parse returns the file's root, or nil if it is empty.
func (r *fileReader) parse() (*yaml.Node, error) {
	content, err := readFile(r.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", r.named.at, r.name, err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, second yaml.Node
	err = decoder.Decode(&document)
	if err == nil {
		err = decoder.Decode(&second)
		if err == nil {
			return nil, fmt.Errorf("%s:%d: a second YAML document begins: only one is read", r.name, max(1, second.Line))
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return nil, r.syntaxError(err)
	case len(document.Content) == 0 || isNull(document.Content[0]):
		return nil, nil
	}
	return document.Content[0], nil
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err == nil {
		defer file.Close()
		var content []byte
		content, err = io.ReadAll(io.LimitReader(file, maxFileSize+1))
		if err == nil && len(content) > maxFileSize {
			err = errors.New("is too long for a configuration file")
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

// syntaxError puts the line where messages about files have it.
func (r *fileReader) syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s: %s", r.name, m[1], m[2])
	}
	return fmt.Errorf("%s: %s", r.name, text)
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
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "names with values"
	default:
		return "a single value"
	}
}
