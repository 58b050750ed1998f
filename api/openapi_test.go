package api

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
)

// TestRoutesAreDocumented compares the table of routes with the document, in both directions.
func TestRoutesAreDocumented(t *testing.T) {
	doc := document(t)
	documented := map[string][]string{} // "method path": parameters of the query
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			names := []string{}
			for _, p := range operation.Parameters {
				if p.Value.In == openapi3.ParameterInQuery {
					names = append(names, p.Value.Name)
				}
				if p.Value.In == openapi3.ParameterInPath {
					require.Contains(t, path, "{"+p.Value.Name+"}")
				}
			}
			slices.Sort(names)
			documented[method+" "+path] = names
		}
	}
	served := map[string][]string{}
	for _, r := range (&server{}).routes() {
		if isPage(r.path) {
			continue
		}
		path := strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}", ":id", "{id}").Replace(r.path)
		names := append([]string{}, r.query...)
		slices.Sort(names)
		served[r.method+" "+path] = names
	}
	require.Equal(t, served, documented)
}

// TestErrorCodesAreDocumented checks the schema and the examples against package problem.
func TestErrorCodesAreDocumented(t *testing.T) {
	doc := document(t)
	common := doc.Components.Responses["Error"].Value
	examples := common.Content["application/problem+json"].Examples
	var codes []any
	for _, k := range problem.Types() {
		codes = append(codes, string(k.Code))
		example := examples[string(k.Code)].Value.Value.(map[string]any)
		require.Equal(t, k.Title, example["title"])
		require.EqualValues(t, k.Status, example["status"])
		require.NotEmpty(t, operationsOf()[k.Code], k.Code)
	}
	require.Equal(t, codes, doc.Components.Schemas["ErrorCode"].Value.Enum)
	require.Len(t, examples, len(codes))
	require.Len(t, operationsOf(), len(codes))
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if fails := path == "/readyz" || strings.HasPrefix(path, "/v1/"); fails {
				require.Same(t, common, operation.Responses.Default().Value, method+" "+path)
			} else {
				require.Nil(t, operation.Responses.Default(), path)
			}
		}
	}
}

// operationsOf lists the operations that can return each code. EmptySegment, NotFound, MethodNotAllowed and
// TooManyHeaders are requests that match none.
func operationsOf() map[problem.Code]string {
	const (
		records   = " pingUser leaveUser recordPings recordLeaves"
		devices   = " getDevices closeConnections"
		evaluates = " getUser getDot lookupUsers lookupUsersByQuery listUsers countUsers"
		follows   = " getChanges postChanges"
		says      = " setAvailability getAvailability deleteAvailability"
		keeps     = " setContacts changeContacts deleteContacts listContacts"
		deletes   = " deleteUser deleteNamespace"
		acts      = " acceptCall rejectCall endCall keepCall"
		calls     = acts + " startCall getCall listCalls"
		uses      = records + evaluates + devices + follows + says + keeps + deletes + calls // a namespace in the store
		all       = uses + " getNamespace listNamespaces"
		socket    = " WebSocket" // an error after the upgrade, which is not a response
		bodies    = records + " lookupUsers postChanges setAvailability setContacts changeContacts startCall" + acts
	)
	return map[problem.Code]string{
		problem.InvalidNamespace:     uses + " getNamespace EmptySegment" + " connect",
		problem.InvalidUser:          records + " getUser getDot lookupUsers lookupUsersByQuery deleteUser EmptySegment" + follows + devices + says + keeps + acts + " startCall listCalls",
		problem.InvalidDevice:        records + acts + " startCall",
		problem.InvalidTime:          records + evaluates + " setAvailability listContacts",
		problem.InvalidDuration:      evaluates + follows + " leaveUser recordLeaves setAvailability listContacts listCalls",
		problem.InvalidAvailability:  "setAvailability",
		problem.InvalidNote:          "setAvailability",
		problem.NoAvailability:       "setAvailability deleteAvailability",
		problem.AvailabilityNotReady: "setAvailability",
		problem.NoContacts:           keeps,
		problem.TooManyContacts:      "changeContacts",
		problem.ContactsChanged:      "setContacts changeContacts",
		problem.InvalidCall:          "startCall acceptCall keepCall",
		problem.CallNotFound:         "getCall" + acts,
		problem.CallerBusy:           "startCall",
		problem.CalleeBusy:           "startCall",
		problem.CalleeUnavailable:    "startCall",
		problem.CallRefused:          acts,
		problem.IdempotencyKeyReused: "startCall",
		problem.TooManyCalls:         "startCall",
		problem.CallTooSoon:          "startCall",
		problem.NoCalls:              calls,
		problem.InvalidThresholds:    evaluates + " listContacts",
		problem.InvalidParameter:     all + " EmptySegment" + " connect",
		problem.UnknownParameter:     all + " connect",
		problem.InvalidCursor:        "listUsers listNamespaces listContacts listCalls" + follows,
		problem.InvalidRange:         "listUsers countUsers",
		problem.InvalidJSON:          bodies,
		problem.UnknownField:         bodies,
		problem.TooManyItems:         "recordPings recordLeaves lookupUsers lookupUsersByQuery setContacts changeContacts" + follows,
		problem.BodyTooLarge:         bodies,
		problem.TooManyHeaders:       "TooManyHeaders",
		problem.UnsupportedMediaType: bodies,
		problem.ConfirmationRequired: "deleteNamespace",
		problem.NotFound:             records + evaluates + follows + says + keeps + calls + " getDevices getNamespace NotFound",
		problem.MethodNotAllowed:     "MethodNotAllowed",
		problem.Unauthenticated:      all,
		problem.Forbidden:            all + " connect",
		problem.RateLimited:          all + " connect",
		problem.FeedUnavailable:      follows,
		problem.WrongKeyType:         uses + " listNamespaces",
		problem.NamespaceMismatch:    uses,
		problem.StoreUnavailable:     uses + " listNamespaces getReadiness",
		problem.DevicesUnavailable:   records + " getDevices",
		problem.StoreFull:            records + deletes + " setAvailability deleteAvailability setContacts changeContacts deleteContacts" + " closeConnections" + " getReadiness startCall" + acts,
		problem.Overloaded:           uses + " listNamespaces" + " connect",
		problem.KeysUnavailable:      all,
		problem.ShuttingDown:         "getReadiness connect getChanges postChanges",
		problem.UpgradeRequired:      "connect",
		problem.UnknownFrame:         socket,
		problem.TimedOut:             socket,
		problem.ConnectionClosed:     socket,
		problem.Internal:             uses + " listNamespaces getReadiness",
	}
}

// documentedResponses returns all kinds of response, as "operation status" and, for errors, "operation status code".
func documentedResponses(doc *openapi3.T) map[string]bool {
	all := map[string]bool{"Options 204": true}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if status != "default" {
					all[operation.OperationID+" "+status] = true
				}
			}
		}
	}
	for code, operations := range operationsOf() {
		for operation := range strings.FieldsSeq(operations) {
			if operation == "WebSocket" {
				continue
			}
			all[fmt.Sprintf("%s %d %s", operation, code.Type().Status, code)] = true
		}
	}
	return all
}

// TestLimitsAreDocumented checks that the limits in the schemas are those of the code.
func TestLimitsAreDocumented(t *testing.T) {
	components := document(t).Components
	items := func(schema, field string) uint64 {
		return *components.Schemas[schema].Value.Properties[field].Value.MaxItems
	}
	limit, size := components.Parameters["limit"].Value.Schema.Value, components.Parameters["size"].Value.Schema.Value
	for _, pair := range [][2]any{
		{maxItems, items("PingBatch", "pings")},
		{maxItems, items("LeaveBatch", "leaves")},
		{maxLookup, items("LookupRequest", "users")},
		{maxLookup, items("ChangesRequest", "users")},
		{maxLookupQuery, *components.Parameters["users"].Value.Schema.Value.MaxItems},
		{maxLimit, *limit.Max},
		{defaultLimit, limit.Default},
		{minDotSize, *size.Min},
		{maxDotSize, *size.Max},
		{defaultDotSize, size.Default},
		{lastseen.MaxNamespaceLen, *components.Parameters["namespaceName"].Value.Schema.Value.MaxLength},
		{lastseen.MaxUserLen, *components.Schemas["UserID"].Value.MaxLength},
	} {
		require.EqualValues(t, pair[0], pair[1])
	}
}

// TestGeneratedClient generates a client from the document with oapi-codegen and runs a program that uses it: see
// tools/client, which is a module of its own, so that its dependencies are not those of the project.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "it builds a client, which sends one request at a time")
	dir, source := t.TempDir(), "../tools/client"
	for _, name := range []string{"go.mod", "go.sum", "config.yaml", "main.go"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), lastseen.OpenAPI(), 0o600))
	goRun := func(args ...string) {
		t.Helper()
		command := testenv.Command("go", args...)
		command.Dir = dir
		output, err := command.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, output)
	}
	goRun("tool", "oapi-codegen", "-config", "config.yaml", "openapi.yaml")
	goRun("run", ".", newTestServer(t, fileStore(t)).url)
}

// TestGuideOfConnectionsFitsSchema checks each frame in the texts against its schema, and that the guide has each kind.
func TestGuideOfConnectionsFitsSchema(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, name := range []string{"../docs/connections.md", "../README.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`(?m)^([<>]) (\{"(\w+)".*\})$`).FindAllSubmatch(text, -1) {
			from := map[string]string{">": "client", "<": "server"}[string(line[1])]
			if string(line[3]) == "wave" {
				continue // an example of a frame that does not exist
			}
			checkFrame(t, from, line[2])
			shown[from+"_"+string(line[3])] = true
		}
	}
	doc, err := loadFrames()
	require.NoError(t, err)
	for name := range doc.Components.Schemas {
		if isFrame := regexp.MustCompile(`^(client|server)_`).MatchString(name); isFrame && name != "server_reset" {
			require.Contains(t, shown, name)
		}
	}
}
