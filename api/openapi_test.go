package api

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// TestRoutesNeedPermissions checks that a route without a permission is not served.
func TestRoutesNeedPermissions(t *testing.T) {
	s := &server{}
	for _, r := range s.routes() {
		require.NotEqual(t, guard.None, r.Permission, r.path)
		require.NotPanics(t, func() { s.serve(r) })
		require.Equal(t, kit.IsPublic(r.path), r.Permission == guard.Public, r.path)
		r.Permission = guard.None
		require.PanicsWithValue(t, "api: no permission is set for "+r.method+" "+r.path, func() { s.serve(r) })
	}
}

// documentedPath returns the path of a route as it is in the document.
func documentedPath(path string) string {
	return regexp.MustCompile(`:(\w+)`).ReplaceAllString(path, "{$1}")
}

// TestPermissionsAreDocumented checks that operations name the scope that they need and list what happens to callers
// without it and to those who send too much, and that public ones need no credentials and refuse nobody.
func TestPermissionsAreDocumented(t *testing.T) {
	doc, checked := kit.Document(t), 0
	for _, r := range (&server{}).routes() {
		item := doc.Paths.Value(documentedPath(r.path))
		if item == nil {
			continue // a page
		}
		operation := item.GetOperation(r.method)
		if r.Permission == guard.Public {
			require.Nil(t, operation.Security, r.path)
			require.Empty(t, listedErrors(operation, "401", "403", "429"), r.path)
			continue
		}
		refusals := []string{"401", "403", "429"}
		if r.Permission == guard.Greeting { // credentials are checked after the upgrade
			refusals = refusals[1:]
		}
		require.Equal(t, refusals, listedErrors(operation, "401", "403", "429"), r.path)
		require.NotNil(t, operation.Security, r.path)
		require.Contains(t, operation.Description, "Requires the scope `"+string(r.Scope())+"`", r.path)
		checked++
	}
	require.Equal(t, len(kit.PermissionsByRoute())+1, checked, "and connect")
}

// TestRoutesAreDocumented compares the table of routes with the document, in both directions.
func TestRoutesAreDocumented(t *testing.T) {
	doc := kit.Document(t)
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
		if kit.IsPage(r.path) {
			continue
		}
		path := documentedPath(r.path)
		names := append([]string{}, r.query...)
		slices.Sort(names)
		served[r.method+" "+path] = names
	}
	require.Equal(t, served, documented)
}

// listedErrors returns which of these statuses an operation lists.
func listedErrors(operation *openapi3.Operation, statuses ...string) (listed []string) {
	for _, status := range statuses {
		if operation.Responses.Value(status) != nil {
			listed = append(listed, status)
		}
	}
	return listed
}

// ownResponses are the statuses of errors that operations list one by one; all others are the default response.
func ownResponses() []string { return []string{"401", "403", "404", "409", "429", "503"} }

// TestErrorsOfOperationsAreListed compares the errors that operations list with those that the server returns. A test
// in servertests provokes each of them.
func TestErrorsOfOperationsAreListed(t *testing.T) {
	returned := map[string]bool{} // "operation status"
	for code, operations := range kit.OperationsOf() {
		for operation := range strings.FieldsSeq(operations) {
			returned[fmt.Sprint(operation, " ", code.Type().Status)] = true
		}
	}
	doc := kit.Document(t)
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			var want []string
			for _, status := range ownResponses() {
				if returned[operation.OperationID+" "+status] {
					want = append(want, status)
				}
			}
			require.Equal(t, want, listedErrors(operation, ownResponses()...), method+" "+path)
			fails := path == "/readyz" || strings.HasPrefix(path, "/v1/")
			require.Equal(t, fails, operation.Responses.Default() != nil, path)
			for status, response := range operation.Responses.Map() {
				if status >= "4" {
					require.NotEmpty(t, response.Ref, "%s %s: described once", path, status)
				}
			}
		}
	}
}

// TestErrorCodesAreDocumented checks the schema and the examples against package problem: each code is an example of
// the response with its status.
func TestErrorCodesAreDocumented(t *testing.T) {
	doc := kit.Document(t)
	names := map[int]string{
		401: "UnauthorizedError", 403: "ForbiddenError", 404: "NotFoundError", 409: "ConflictError",
		429: "TooManyRequestsError", 503: "ServiceUnavailableError",
	}
	require.Len(t, doc.Components.Responses, len(names)+1)
	var codes []any
	shown := 0
	for _, response := range doc.Components.Responses {
		shown += len(response.Value.Content["application/problem+json"].Examples)
	}
	for _, k := range problem.Types() {
		codes = append(codes, string(k.Code))
		response := doc.Components.Responses[cmp.Or(names[k.Status], "Error")].Value
		example := response.Content["application/problem+json"].Examples[string(k.Code)].Value.Value.(map[string]any)
		require.Equal(t, k.Title, example["title"])
		require.EqualValues(t, k.Status, example["status"])
		require.NotEmpty(t, kit.OperationsOf()[k.Code], k.Code)
	}
	require.Equal(t, codes, doc.Components.Schemas["ErrorCode"].Value.Enum)
	require.Equal(t, len(codes), shown)
	require.Len(t, kit.OperationsOf(), len(codes))
}

// TestLimitsAreDocumented checks that the limits in the schemas are those of the code.
func TestLimitsAreDocumented(t *testing.T) {
	components := kit.Document(t).Components
	items := func(schema, field string) uint64 {
		return *components.Schemas[schema].Value.Properties[field].Value.MaxItems
	}
	limit, size := components.Parameters["limit"].Value.Schema.Value, components.Parameters["size"].Value.Schema.Value
	for _, pair := range [][2]any{
		{request.MaxItems, items("PingBatch", "pings")},
		{request.MaxItems, items("LeaveBatch", "leaves")},
		{request.MaxUsers, items("LookupRequest", "users")},
		{request.MaxUsers, items("ChangesRequest", "users")},
		{maxLookupQuery, *components.Parameters["users"].Value.Schema.Value.MaxItems},
		{request.MaxLimit, *limit.Max},
		{request.DefaultLimit, limit.Default},
		{minDotSize, *size.Min},
		{maxDotSize, *size.Max},
		{defaultDotSize, size.Default},
		{lastseen.MaxNamespaceLen, *components.Parameters["namespaceName"].Value.Schema.Value.MaxLength},
		{lastseen.MaxUserLen, *components.Schemas["UserID"].Value.MaxLength},
	} {
		require.EqualValues(t, pair[0], pair[1])
	}
}

// TestGuideOfConnectionsFitsSchema checks each frame in the texts against its schema, and that the guide has each kind.
func TestGuideOfConnectionsFitsSchema(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, name := range []string{"../docs/connections.md", "../docs/frames.md", "../docs/tour.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`(?m)^([<>]) (\{"(\w+)".*\})$`).FindAllSubmatch(text, -1) {
			from := map[string]string{">": "client", "<": "server"}[string(line[1])]
			if string(line[3]) == "wave" {
				continue // an example of a frame that does not exist
			}
			kit.CheckFrame(t, from, line[2])
			shown[from+"_"+string(line[3])] = true
		}
	}
	doc, err := kit.LoadFrames()
	require.NoError(t, err)
	for name := range doc.Components.Schemas {
		if isFrame := regexp.MustCompile(`^(client|server)_`).MatchString(name); isFrame && name != "server_reset" {
			require.Contains(t, shown, name)
		}
	}
}
