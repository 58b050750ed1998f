package api

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
)

// reference is a reference in the AsyncAPI document.
type reference struct {
	Ref string `yaml:"$ref"`
}

// asyncDocument is what the tests need of the AsyncAPI document.
type asyncDocument struct {
	Channels map[string]struct {
		Address    string
		Parameters map[string]any
		Messages   map[string]struct {
			Name          string
			Payload       reference
			CorrelationID reference `yaml:"correlationId"`
			Examples      []struct{ Payload any }
		}
	}
	Operations map[string]struct {
		Action   string
		Channel  reference
		Messages []reference
		Reply    struct{ Messages []reference }
	}
	Components struct {
		CorrelationIDs map[string]any `yaml:"correlationIds"`
	}
}

func loadAsync(t *testing.T) (doc asyncDocument) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(lastseen.AsyncAPI("1"), &doc))
	return doc
}

// TestAsyncAPIIsValid checks the document against the published schema of AsyncAPI.
func TestAsyncAPIIsValid(t *testing.T) {
	t.Parallel()
	published, err := os.Open("testdata/asyncapi/3.0.0.schema.json")
	require.NoError(t, err)
	defer published.Close()
	schema, err := jsonschema.UnmarshalJSON(published)
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("asyncapi.json", schema))
	rules, err := compiler.Compile("asyncapi.json")
	require.NoError(t, err)
	require.NoError(t, rules.Validate(asyncValue(t, string(lastseen.AsyncAPI("1")))))
	for right, wrong := range map[string]string{
		"action: receive": "action: listen", "protocol: ws,": "protocoll: ws,", "  title: ": "  titel: ",
		"address: ": "path: ",
	} {
		spoiled := strings.Replace(string(lastseen.AsyncAPI("1")), right, wrong, 1)
		require.Error(t, rules.Validate(asyncValue(t, spoiled)), wrong)
	}
}

// asyncValue returns a YAML document as the validator reads JSON.
func asyncValue(t *testing.T, text string) any {
	t.Helper()
	var document any
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	encoded, err := json.Marshal(document)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(encoded)))
	require.NoError(t, err)
	return value
}

// TestAsyncAPIHasAllFrames compares the messages with the frames in both directions, and checks each example against
// the schema of its frame.
func TestAsyncAPIHasAllFrames(t *testing.T) {
	t.Parallel()
	doc := loadAsync(t)
	frames, err := kit.LoadFrames()
	require.NoError(t, err)
	connection := doc.Channels["connection"]
	require.Len(t, doc.Channels, 1)
	served := strings.NewReplacer("{", ":", "}", "").Replace(connection.Address)
	require.Contains(t, served, "/:namespace/")
	require.Contains(t, connection.Parameters, "namespace")
	var paths []string
	for _, r := range (&server{}).routes() {
		paths = append(paths, r.path)
	}
	require.Contains(t, paths, served)
	for name, schema := range frames.Components.Schemas {
		if regexp.MustCompile(`^(client|server)_`).MatchString(name) {
			message, described := connection.Messages[name]
			require.True(t, described, name)
			_, correlated := schema.Value.Properties["id"]
			require.Equal(t, correlated, message.CorrelationID.Ref == "#/components/correlationIds/id", name)
		}
	}
	require.Contains(t, doc.Components.CorrelationIDs, "id")
	for name, message := range connection.Messages {
		require.Contains(t, frames.Components.Schemas, name)
		require.Equal(t, "connections.schema.json#/$defs/"+name, message.Payload.Ref)
		from, frame, _ := strings.Cut(name, "_")
		require.Equal(t, frame, message.Name)
		require.NotEmpty(t, message.Examples, name)
		for _, example := range message.Examples {
			text, err := json.Marshal(example.Payload)
			require.NoError(t, err)
			require.Contains(t, example.Payload, frame)
			kit.CheckFrame(t, from, text)
		}
	}
}

// TestAsyncAPIOperations checks that the server receives the frames of clients and sends its own, and that each frame
// is of an operation or a reply.
func TestAsyncAPIOperations(t *testing.T) {
	t.Parallel()
	doc := loadAsync(t)
	connection, used := doc.Channels["connection"], map[string]bool{}
	check := func(operation, from string, refs []reference) {
		for _, r := range refs {
			name, ok := strings.CutPrefix(r.Ref, "#/channels/connection/messages/")
			require.True(t, ok, operation)
			require.Contains(t, connection.Messages, name, operation)
			require.True(t, strings.HasPrefix(name, from+"_"), "%s: %s", operation, name)
			used[name] = true
		}
	}
	for name, operation := range doc.Operations {
		from, known := map[string]string{"receive": "client", "send": "server"}[operation.Action]
		require.True(t, known, name)
		require.Equal(t, "#/channels/connection", operation.Channel.Ref, name)
		require.Len(t, operation.Messages, 1, name)
		require.Equal(t, from == "client", len(operation.Reply.Messages) > 0, name)
		check(name, from, operation.Messages)
		check(name, "server", operation.Reply.Messages)
	}
	require.Len(t, used, len(connection.Messages))
}
