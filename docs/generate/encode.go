package main

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api"
)

// order is how the fields of a document follow each other, for people who read it from the top. What
// is not named here comes after, by name.
const order = `
	openapi swagger info servers basePath tags paths components definitions
	type title version
	/v1/namespaces/{namespace}/users/{user}/ping
	/v1/namespaces/{namespace}/users/{user}/leave
	/v1/namespaces/{namespace}/pings
	/v1/namespaces/{namespace}/leaves
	/v1/namespaces/{namespace}/users/{user}
	/v1/namespaces/{namespace}/lookup
	/v1/namespaces/{namespace}/users
	/v1/namespaces/{namespace}/counts
	/v1/namespaces
	/v1/namespaces/{namespace}
	get post delete
	name in $ref operationId summary user status code detail nullable format description required
	schema value now example examples parameters requestBody headers content responses
	last_seen left valid_until as_of green_ms yellow_ms ping_after_ms namespace index
	green yellow grey total namespaces users hint next_cursor`

// encode writes a document as YAML, after a comment.
func encode(comment string, doc object) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(doc); err != nil {
		return nil, err
	}
	rank := map[string]int{}
	for i, name := range strings.Fields(order) {
		rank[name] = i
	}
	for _, c := range api.ErrorCodes() {
		rank[c.Code] = len(rank)
	}
	arrange(&root, rank)
	b := bytes.NewBufferString("# " + comment + "\n")
	encoder := yaml.NewEncoder(b)
	encoder.SetIndent(2)
	err := encoder.Encode(&root)
	return b.Bytes(), err
}

// arrange sorts the fields of all objects by rank, and by name where they have none. It writes numbers
// without exponents.
func arrange(node *yaml.Node, rank map[string]int) {
	if n, err := strconv.ParseFloat(node.Value, 64); err == nil && node.Tag == "!!float" {
		node.Value = strconv.FormatFloat(n, 'f', -1, 64)
	}
	for _, child := range node.Content {
		arrange(child, rank)
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	type field struct{ name, value *yaml.Node }
	var fields []field
	for pair := range slices.Chunk(node.Content, 2) {
		fields = append(fields, field{pair[0], pair[1]})
	}
	place := func(f field) int {
		if r, ok := rank[f.name.Value]; ok {
			return r
		}
		return len(rank)
	}
	slices.SortFunc(fields, func(a, b field) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.name.Value, b.name.Value))
	})
	node.Content = node.Content[:0]
	for _, f := range fields {
		node.Content = append(node.Content, f.name, f.value)
	}
}
