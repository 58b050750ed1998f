package kit

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// LoadFrames reads docs/connections.schema.json as schemas of an OpenAPI document, which have another form of null.
var LoadFrames = sync.OnceValues(func() (*openapi3.T, error) {
	var schema map[string]any
	text := strings.ReplaceAll(string(lastseen.FrameSchemas()), "#/$defs/", "#/components/schemas/")
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(map[string]any{
		"openapi": "3.0.3", "info": map[string]any{"title": "frames", "version": "1"}, "paths": map[string]any{},
		"components": map[string]any{"schemas": nullable(schema["$defs"])},
	})
	if err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(doc)
})

// nullable replaces what allows null in a schema: lists of types, and no type.
func nullable(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = nullable(v[i])
		}
	case map[string]any:
		if types, ok := v["type"].([]any); ok {
			if types[1] == "null" {
				v["type"], v["nullable"] = types[0], true
			} else {
				delete(v, "type")
				v["anyOf"] = []any{map[string]any{"type": types[0]}, map[string]any{"type": types[1]}}
			}
		}
		if _, described := v["description"].(string); described && len(v) == 1 {
			v["nullable"] = true // as any other value
		}
		for name := range v {
			v[name] = nullable(v[name])
		}
	}
	return v
}

// CheckFrame checks a frame against its schema, which is that of frames from the "client" or the "server".
func CheckFrame(t *testing.T, from string, text []byte) {
	t.Helper()
	require.NoError(t, FrameError(t, from, text), "%s", text)
}

// FrameError is the error of a frame that is not as in its schema.
func FrameError(t *testing.T, from string, text []byte) error {
	t.Helper()
	doc, err := LoadFrames()
	require.NoError(t, err)
	var frame any
	require.NoError(t, json.Unmarshal(text, &frame), "%s", text)
	name := from
	for key := range frame.(map[string]any) {
		if key != "id" {
			name = from + "_" + key // names the fault better than the schema of all frames
		}
	}
	require.Contains(t, doc.Components.Schemas, name)
	return doc.Components.Schemas[name].Value.VisitJSON(frame)
}

// WantCall reads the next frame of a client, which has a call in a state, and returns the call.
func WantCall(t *testing.T, c *Socket, call map[string]any, state lastseen.CallState) map[string]any {
	t.Helper()
	got := c.Want("call")
	require.Equal(t, call["id"], got["id"])
	require.Equal(t, string(state), got["state"], "%v", got)
	return got
}

// Saying returns the fields by which a client learns its user's availability.
func Saying(availability, note, until any) map[string]any {
	return map[string]any{"availability": availability, "note": note, "until": until}
}

// WantSelf reads the next frame of a client, which says this.
func WantSelf(t *testing.T, c *Socket, says map[string]any) {
	t.Helper()
	got := c.Want("self")
	require.Equal(t, says, got)
}
