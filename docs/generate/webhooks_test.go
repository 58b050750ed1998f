package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testguide"
)

var updateSchemas = flag.Bool("update", false, "write docs/webhooks.schema.json, instead of comparing")

// events are the schemas of the events of webhooks.
func events() []string {
	return []string{"WebhookChanged", "WebhookReset", "WebhookSnapshot", "WebhookTest"}
}

// TestWebhookSchemas compares docs/webhooks.schema.json with the schemas of the OpenAPI document, which are the source.
func TestWebhookSchemas(t *testing.T) {
	name := filepath.Join(root, "docs", "webhooks.schema.json")
	var doc struct{ Components struct{ Schemas object } }
	require.NoError(t, remarshal(webhooks(t), &doc))
	defs, anyOf := object{}, []object{}
	for _, event := range events() {
		addSchema(defs, doc.Components.Schemas, event)
		anyOf = append(anyOf, object{"$ref": "#/$defs/" + event})
	}
	want, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "https://github.com/lastseen/lastseen/docs/webhooks.schema.json",
		"title":   "Events of the webhooks of lastseen", "anyOf": anyOf, "$defs": defs,
	}, "", "  ")
	require.NoError(t, err)
	want = append(want, '\n')
	if *updateSchemas {
		require.NoError(t, os.WriteFile(name, want, 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run this test with -update")
}

// addSchema adds a schema of an OpenAPI document to those of a JSON Schema, and what it refers to.
func addSchema(defs, schemas object, name string) {
	if defs[name] == nil {
		defs[name] = true // in case that it refers to itself
		defs[name] = toJSONSchema(schemas[name], func(name string) { addSchema(defs, schemas, name) })
	}
}

// toJSONSchema converts a schema of OpenAPI 3.0, where null is allowed in another form, and reports its references.
func toJSONSchema(v any, refers func(name string)) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = toJSONSchema(v[i], refers)
		}
	case object:
		if name, ok := v["$ref"].(string); ok {
			name = strings.TrimPrefix(name, "#/components/schemas/")
			refers(name)
			return object{"$ref": "#/$defs/" + name}
		}
		if v["nullable"] == true {
			v["type"] = []any{v["type"], "null"}
			delete(v, "nullable")
		}
		for name := range v {
			v[name] = toJSONSchema(v[name], refers)
		}
	}
	return v
}

// webhooks returns the OpenAPI document with its webhooks as paths, which is how a library can check them: OpenAPI 3.0
// has them as an extension.
func webhooks(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(root, "openapi.yaml"))
	require.NoError(t, err)
	var raw object
	require.NoError(t, remarshal(doc, &raw))
	paths := object{}
	for name, item := range raw["x-webhooks"].(object) {
		paths["/"+name] = item
	}
	raw["paths"] = paths
	encoded, err := json.Marshal(raw)
	require.NoError(t, err)
	doc, err = openapi3.NewLoader().LoadFromData(encoded)
	require.NoError(t, err)
	return doc
}

// TestWebhooksAreValid checks the webhooks by the rules of OpenAPI, each with the schema of its event, and the examples
// of the document and of the guide by the schemas.
func TestWebhooksAreValid(t *testing.T) {
	doc := webhooks(t)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	schemas, err := os.ReadFile(filepath.Join(root, "docs", "webhooks.schema.json"))
	require.NoError(t, err)
	check := testguide.Events(t, string(schemas))
	var described []string
	for path, item := range doc.Paths.Map() {
		operation := item.Post
		requireParameters(t, operation)
		requireContents(t, operation)
		body := operation.RequestBody.Value.Content["application/json"]
		described = append(described, strings.TrimPrefix(body.Schema.Ref, "#/components/schemas/"))
		require.Equal(t, []any{path[1:]}, body.Schema.Value.Properties["type"].Value.Enum)
		example, err := json.Marshal(body.Example)
		require.NoError(t, err)
		require.NoError(t, check(string(example)), path)
		unknown := strings.Replace(string(example), `"data":{`, `"data":{"unknown":1,`, 1)
		require.Error(t, check(unknown), "%s: the check is not strict", path)
	}
	slices.Sort(described)
	require.Equal(t, events(), described)
	for _, example := range testguide.Blocks(t, "webhooks.md", "json") {
		require.NoError(t, check(example), example)
	}
}
