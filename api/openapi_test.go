package api

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
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
		if slices.Contains(pages(), r.path) {
			continue
		}
		path := strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}").Replace(r.path)
		names := []string{}
		if !slices.Equal(r.query, anyQuery()) {
			names = append(names, r.query...)
		}
		slices.Sort(names)
		served[r.method+" "+path] = names
	}
	require.Equal(t, served, documented)
}

// TestErrorCodesAreDocumented: api/codes.go is the one list.
func TestErrorCodesAreDocumented(t *testing.T) {
	doc := document(t)
	var codes []any
	for _, k := range problemTypes() {
		codes = append(codes, string(k.code))
		example := doc.Components.Examples[string(k.code)].Value.Value.(map[string]any)
		require.Equal(t, k.title, example["title"])
		require.EqualValues(t, k.status, example["status"])
	}
	require.Equal(t, codes, doc.Components.Schemas["ErrorCode"].Value.Enum)
	require.Len(t, doc.Components.Examples, len(codes))
	for answer := range documentedAnswers(doc) {
		if parts := strings.Split(answer, " "); len(parts) == 3 && parts[1] != "" {
			require.Equal(t, strconv.Itoa(code(parts[2]).problemType().status), parts[1], answer)
		}
	}
}

// documentedAnswers returns all answers of the document, as a contract remembers them.
func documentedAnswers(doc *openapi3.T) map[string]bool {
	all := map[string]bool{}
	add := func(id, status string, response *openapi3.Response) {
		problem := response.Content["application/problem+json"]
		if problem == nil {
			all[id+" "+status] = true
			return
		}
		for c := range problem.Examples {
			all[id+" "+status+" "+c] = true
		}
	}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				add(operation.OperationID, status, response.Value)
			}
		}
	}
	for name, status := range map[string]string{"Options": "204", "EmptySegment": "400", "NotFound": "404", "MethodNotAllowed": "405", "TooManyHeaders": "431"} {
		add(name, status, doc.Components.Responses[name].Value)
	}
	return all
}

// TestLimitsAreDocumented: those that schemas can say are those of the code.
func TestLimitsAreDocumented(t *testing.T) {
	components := document(t).Components
	items := func(schema, field string) uint64 {
		return *components.Schemas[schema].Value.Properties[field].Value.MaxItems
	}
	limit := components.Parameters["limit"].Value.Schema.Value
	for _, pair := range [][2]any{
		{maxItems, items("Pings", "pings")},
		{maxItems, items("Leaves", "leaves")},
		{maxLookup, items("Lookup", "users")},
		{maxLookupQuery, *components.Parameters["users"].Value.Schema.Value.MaxItems},
		{maxLimit, *limit.Max},
		{defaultLimit, limit.Default},
		{lastseen.MaxNamespaceLen, *components.Parameters["namespace"].Value.Schema.Value.MaxLength},
		{lastseen.MaxUserLen, *components.Schemas["UserID"].Value.MaxLength},
	} {
		require.EqualValues(t, pair[0], pair[1])
	}
}
