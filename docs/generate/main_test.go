package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestFilesAreFresh fails when an annotation, a type or the overlay changed and `make generate` was
// not run.
func TestFilesAreFresh(t *testing.T) {
	require.NoError(t, run(root, true))
}

// TestStaleFilesAreFound changes each file, in a copy, and sees it found and mended.
func TestStaleFilesAreFound(t *testing.T) {
	files, err := documents(root)
	require.NoError(t, err)
	require.Len(t, files, 3)
	dir := t.TempDir()
	require.ErrorIs(t, compare(dir, files), os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "docs"), 0o755))
	require.NoError(t, write(dir, files))
	require.NoError(t, compare(dir, files))
	for name := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("stale"), 0o644))
		require.ErrorContains(t, compare(dir, files), name+" is stale")
		require.NoError(t, write(dir, files))
	}
}

// TestDocumentIsValid checks the document by the rules of OpenAPI, its examples by their schemas, and
// that every operation has what people look for.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(root, "openapi.yaml"))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()))
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.Equal(t, "/", doc.Servers[0].URL)
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

// requireParameters: each is a shared one or explained here, and a required one has an example.
func requireParameters(t *testing.T, operation *openapi3.Operation) {
	t.Helper()
	for _, p := range operation.Parameters {
		what := operation.OperationID + " " + p.Value.Name
		require.Greater(t, len(p.Value.Description), 20, what)
		require.Equal(t, p.Value.Required, p.Value.Example != nil, "%s: what is optional must not be filled in for those who try it", what)
	}
}

// requireContents: every body has an example, and every answer its description and headers.
func requireContents(t *testing.T, operation *openapi3.Operation) {
	t.Helper()
	contents := map[string]openapi3.Content{}
	if operation.RequestBody != nil {
		contents["request"] = operation.RequestBody.Value.Content
	}
	for status, response := range operation.Responses.Map() {
		contents[status] = response.Value.Content
		require.NotEmpty(t, *response.Value.Description)
		require.Contains(t, response.Value.Headers, "X-Request-Id", status)
		require.Contains(t, response.Value.Headers, "Cache-Control", status)
	}
	for name, content := range contents {
		for media, body := range content {
			what := operation.OperationID + " " + name + " " + media
			require.NotNil(t, body.Schema, what)
			require.True(t, body.Example != nil || len(body.Examples) > 0, "%s has no example", what)
		}
	}
}
