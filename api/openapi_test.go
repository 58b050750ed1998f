package api

import (
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

// TestPermissionsAreDocumented checks that operations name the scope that they need, and that public ones need no
// credentials.
func TestPermissionsAreDocumented(t *testing.T) {
	doc, checked := kit.Document(t), 0
	for _, r := range (&server{}).routes() {
		documented := strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}", ":id", "{id}")
		item := doc.Paths.Value(documented.Replace(r.path))
		if item == nil {
			continue // a page
		}
		operation := item.GetOperation(r.method)
		if r.Permission == guard.Public {
			require.Nil(t, operation.Security, r.path)
			continue
		}
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
		path := strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}", ":id", "{id}").Replace(r.path)
		names := append([]string{}, r.query...)
		slices.Sort(names)
		served[r.method+" "+path] = names
	}
	require.Equal(t, served, documented)
}

// TestErrorCodesAreDocumented checks the schema and the examples against package problem.
func TestErrorCodesAreDocumented(t *testing.T) {
	doc := kit.Document(t)
	common := doc.Components.Responses["Error"].Value
	examples := common.Content["application/problem+json"].Examples
	var codes []any
	for _, k := range problem.Types() {
		codes = append(codes, string(k.Code))
		example := examples[string(k.Code)].Value.Value.(map[string]any)
		require.Equal(t, k.Title, example["title"])
		require.EqualValues(t, k.Status, example["status"])
		require.NotEmpty(t, kit.OperationsOf()[k.Code], k.Code)
	}
	require.Equal(t, codes, doc.Components.Schemas["ErrorCode"].Value.Enum)
	require.Len(t, examples, len(codes))
	require.Len(t, kit.OperationsOf(), len(codes))
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
