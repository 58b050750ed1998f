package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api/problem"
)

const root = "../.."

// TestFilesAreFresh fails if an annotation, a type or the overlay has changed since `make generate`.
func TestFilesAreFresh(t *testing.T) {
	files, err := documents(root)
	require.NoError(t, err)
	require.NoError(t, update(root, files, true))
}

// TestStaleFilesAreFound changes each file in a copy.
func TestStaleFilesAreFound(t *testing.T) {
	files, err := documents(root)
	require.NoError(t, err)
	require.Len(t, files, 3)
	dir := t.TempDir()
	require.ErrorIs(t, update(dir, files, true), os.ErrNotExist)
	for name := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	}
	require.NoError(t, update(dir, files, false))
	require.NoError(t, update(dir, files, true))
	for name := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("stale"), 0o644))
		require.ErrorContains(t, update(dir, files, true), name+" is stale")
		require.NoError(t, update(dir, files, false))
	}
}

// TestErrorGuide checks the guide against package problem: it explains each code in sentences, each differently, and
// says whether sending the same request again helps.
func TestErrorGuide(t *testing.T) {
	guide, err := readErrors(root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	require.NoError(t, err)
	require.Len(t, guide, strings.Count(string(text), "\n## "), "a section has another form")
	var types []problem.Type
	seen := map[string]string{}
	for _, e := range guide {
		types = append(types, problem.Type{Code: problem.Code(e.code), Status: e.status, Title: e.title})
		for _, text := range []string{e.title, e.meaning, e.remedy} {
			require.Empty(t, seen[text], "%s says the same as %s", e.code, seen[text])
			seen[text] = e.code
		}
		for _, text := range []string{e.meaning, e.remedy} {
			require.Regexp(t, `^[A-Za-z].{20,}\.$`, text, "%s: sentences", e.code)
		}
		repeat := "No: the same request will fail again."
		switch {
		case e.status == 429:
			repeat = "Yes, after the number of seconds in the header Retry-After."
		case e.status == 503:
			repeat = "Yes, after the number of seconds in the header Retry-After. " +
				"Repeating a ping or a leave that was recorded is harmless."
		case e.status >= 500:
			repeat = "Not until an operator has fixed the cause."
		}
		require.Equal(t, repeat, e.repeat, e.code)
	}
	require.Equal(t, problem.Types(), types)
}

// TestDocumentIsValid checks the document by the rules of OpenAPI, its examples by their schemas, and
// that every operation has what people look for.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(root, "openapi.yaml"))
	require.NoError(t, err)
	examples, formats := openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()
	require.NoError(t, doc.Validate(t.Context(), examples, formats))
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.Equal(t, "./", doc.Servers[0].URL, "relative to the document")
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			what := method + " " + path
			require.Regexp(t, `^[a-z][A-Za-z]+$`, operation.OperationID, what)
			require.NotEmpty(t, operation.Summary, what)
			require.NotEmpty(t, operation.Description, what)
			require.Len(t, operation.Tags, 1, what)
			require.NotNil(t, doc.Tags.Get(operation.Tags[0]), what)
			requireParameters(t, operation)
			requireContents(t, operation)
		}
	}
}

// requireParameters checks that each parameter is described, and that only a required one has an example: Swagger UI
// would send it. It may send users whose changes to follow, rather than follow everyone, and the user whose calls to
// get.
func requireParameters(t *testing.T, operation *openapi3.Operation) {
	t.Helper()
	for _, p := range operation.Parameters {
		what := operation.OperationID + " " + p.Value.Name
		require.Greater(t, len(p.Value.Description), 20, what)
		hasExample := p.Value.Required || what == "followChanges user" || what == "listCalls user"
		require.Equal(t, hasExample, p.Value.Example != nil, "%s: Swagger UI would fill in the example", what)
	}
}

// requireContents checks that every body has an example, and every response a description.
func requireContents(t *testing.T, operation *openapi3.Operation) {
	t.Helper()
	contents := map[string]openapi3.Content{}
	if operation.RequestBody != nil {
		contents["request"] = operation.RequestBody.Value.Content
	}
	for status, response := range operation.Responses.Map() {
		contents[status] = response.Value.Content
		require.NotEmpty(t, *response.Value.Description)
	}
	for name, content := range contents {
		for media, body := range content {
			what := operation.OperationID + " " + name + " " + media
			require.NotNil(t, body.Schema, what)
			require.True(t, body.Example != nil || len(body.Examples) > 0, "%s has no example", what)
		}
	}
}

// TestEnumsAreDefinedOnce checks that no values are listed twice: fields refer to the schema that lists them.
func TestEnumsAreDefinedOnce(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "openapi.yaml"))
	require.NoError(t, err)
	var doc any
	require.NoError(t, yaml.Unmarshal(content, &doc))
	listed := map[string][]any{} // by where
	var check func(at string, node any)
	check = func(at string, node any) {
		switch node := node.(type) {
		case []any:
			for i, child := range node {
				check(at+"/"+strconv.Itoa(i), child)
			}
		case object:
			if values, ok := node["enum"].([]any); ok {
				for where, others := range listed {
					require.NotSubset(t, others, values, "%s and %s", where, at)
					require.NotSubset(t, values, others, "%s and %s", where, at)
				}
				listed[at] = values
			}
			for name, child := range node {
				check(at+"/"+name, child)
			}
		}
	}
	check("", doc)
	require.Equal(t, []any{"active", "idle"}, listed["/components/schemas/Activity"])
	require.Equal(t, []any{"away", "busy", "invisible"}, listed["/components/schemas/Availability"])
}
