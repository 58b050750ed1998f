// Package testguide reads the code in the guides, and checks events as they describe them. It is for tests only.
package testguide

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// Blocks returns the code blocks of a guide, a file in docs, in a language. Tests run two folders below the root.
func Blocks(t *testing.T, name, language string) (blocks []string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		blocks = append(blocks, block[1])
	}
	require.NotEmpty(t, blocks)
	return blocks
}

// Block returns the only one of some blocks with a text.
func Block(t *testing.T, blocks []string, text string) string {
	t.Helper()
	var found []string
	for _, b := range blocks {
		if strings.Contains(b, text) {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, text)
	return found[0]
}

// Generated compares the part of a guide that is generated with what it is to be, or writes that. The part is between a
// comment with how to write it, which ends with -update, and one with "end".
func Generated(t *testing.T, file, part string, update bool) {
	t.Helper()
	const begin, end = "-update -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	old, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+part+end+after), 0o644))
		return
	}
	require.Equal(t, part, old, "run this test with -update")
}

// Events returns a function that checks an event of a webhook against the schemas, those of docs/webhooks.schema.json.
// Unlike receivers, it refuses fields that are not in them.
func Events(t testing.TB, schemas string) func(event string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schemas))
	require.NoError(t, err)
	for name, def := range document.(map[string]any)["$defs"].(map[string]any) {
		if name != "UserPresence" { // which others extend; it is closed where it is used
			closeObjects(def)
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("closed.json", document))
	rules, err := compiler.Compile("closed.json")
	require.NoError(t, err)
	return func(event string) error {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(event))
		if err != nil {
			return err
		}
		return rules.Validate(value)
	}
}

// closeObjects has a schema refuse other fields, in all objects but the parts of an allOf.
func closeObjects(schema any) {
	object, _ := schema.(map[string]any)
	for name, child := range object {
		if name != "allOf" {
			closeObjects(child)
		}
	}
	if object["properties"] != nil || object["$ref"] != nil {
		object["unevaluatedProperties"] = false
	}
}
