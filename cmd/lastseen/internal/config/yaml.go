package config

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

// maxFileSize is the maximum size of a file, in bytes; a device has no end.
const maxFileSize = 16 << 20

// ReadFile returns the content of a file of up to 16 MiB. The error does not name the file.
func ReadFile(name string) ([]byte, error) {
	content, err := readLimited(name)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return content, err
}

func readLimited(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(content) > maxFileSize {
		return nil, errors.New("is too large: the maximum is 16 MiB")
	}
	return content, err
}

// parseYAML returns the root of a file. A source named the file.
func parseYAML(name string, named source) (*yaml.Node, error) {
	content, err := ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", named.at, name, err)
	}
	document, second, err := decode(content)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %s", name, brokenLine(content, err), syntaxMessage(err))
	case !second.IsZero():
		return nil, fmt.Errorf("%s:%d: the file holds a second YAML document: only one is allowed",
			name, max(1, second.Line))
	case len(document.Content) == 0:
		return &document, nil
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

// syntaxPrefix matches the start of the messages of the YAML library.
var syntaxPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxMessage returns what is wrong with YAML and, for the most common mistake, namespaces: [*], what to do.
func syntaxMessage(err error) string {
	message := syntaxPrefix.ReplaceAllString(err.Error(), "")
	if strings.Contains(message, "alphabetic or numeric character") {
		message += " after * or &: put values that start with * in quotes"
	}
	return message
}

// brokenLine returns the first line with which the content has the error. The line that the library reports is
// often an earlier one, where a block starts, or missing.
func brokenLine(content []byte, whole error) int {
	lines := bytes.SplitAfter(content, []byte("\n"))
	return 1 + sort.Search(len(lines)-1, func(n int) bool {
		_, _, err := decode(bytes.Join(lines[:n+1], nil))
		return err != nil && err.Error() == whole.Error()
	})
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// isNull reports whether a node is null, or a file empty.
func isNull(n *yaml.Node) bool {
	return n.IsZero() || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// nodeType returns what a node is, for a message.
func nodeType(n *yaml.Node) string {
	if isNull(n) {
		return "nothing"
	}
	return map[yaml.Kind]string{
		yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping", yaml.ScalarNode: "a single value",
	}[n.Kind]
}
