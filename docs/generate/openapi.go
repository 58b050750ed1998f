package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// object is a JSON object.
type object = map[string]any

// overlayYAML has what Swagger 2.0 cannot express. See the comment at its top.
//
//go:embed overlay.yaml
var overlayYAML []byte

// openAPI converts a Swagger 2.0 document to OpenAPI 3.0 and adds the rules that hold for all operations, the overlay
// and an example of each error.
func openAPI(swagger object, guide []guided) (object, error) {
	var old openapi2.T
	if err := remarshal(swagger, &old); err != nil {
		return nil, err
	}
	converted, err := openapi2conv.ToV3(&old)
	if err != nil {
		return nil, err
	}
	var overlay struct {
		Components struct {
			Parameters map[string]struct{ In, Name string }
		}
	}
	if err := yaml.Unmarshal(overlayYAML, &overlay); err != nil {
		return nil, fmt.Errorf("overlay.yaml: %w", err)
	}
	shared := map[string]string{}
	for key, p := range overlay.Components.Parameters {
		shared[p.In+" "+p.Name] = "#/components/parameters/" + key
	}
	for path, item := range converted.Paths.Map() {
		for method, operation := range item.Operations() {
			finish(operation, method+" "+path, shared)
		}
	}
	var doc, changes object
	if err := remarshal(converted, &doc); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(overlayYAML, &changes); err != nil {
		return nil, err
	}
	return patch(patch(doc, changes), errorExamples(guide)).(object), nil
}

// remarshal converts a value by way of JSON.
func remarshal(from, to any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, to)
}

// finish applies the rules that hold for all operations, which are named as "GET /path". They refer to the shared
// parameters, which are indexed by place and name, and to the responses of errors. Those of the API take optional
// credentials.
func finish(operation *openapi3.Operation, name string, shared map[string]string) {
	listed := operation.Parameters
	operation.Parameters = nil
	for _, p := range listed {
		names := []string{p.Value.Name}
		if names[0] == "as_of" { // where statuses are evaluated
			names = append(names, "green", "yellow")
		}
		for _, name := range names {
			if ref, ok := shared[p.Value.In+" "+name]; ok {
				p = &openapi3.ParameterRef{Ref: ref, Value: p.Value}
			}
			operation.Parameters = append(operation.Parameters, p)
		}
	}
	if body := operation.RequestBody; body != nil {
		body.Value.Extensions = nil // for a conversion back to Swagger
	}
	if strings.Contains(name, " /v1/") {
		operation.Security = &openapi3.SecurityRequirements{{"bearer": {}}, {}}
	}
	for tag, pattern := range tags {
		if pattern.MatchString(name) {
			operation.Tags = append(operation.Tags, tag)
		}
	}
	for status, can := range failures(name) {
		if can {
			operation.Responses.Set(status, &openapi3.ResponseRef{Ref: "#/components/responses/" + responseOf(status)})
		}
	}
}

// tags are the groups of the operations.
var tags = map[string]*regexp.Regexp{
	"Recording":    regexp.MustCompile(`/(pings?|leaves?)$`),
	"Reading":      regexp.MustCompile(`GET .*/({user}|dot[.]svg|devices|users|counts)$|/(lookup|changes)$`),
	"Availability": regexp.MustCompile(`/availability$`),
	"Contacts":     regexp.MustCompile(`/contacts$`),
	"Calls":        regexp.MustCompile(`/calls\b`),
	"Connecting":   regexp.MustCompile(`/connect(ions)?$`),
	"Deleting":     regexp.MustCompile(`DELETE .*}$`),
	"Namespaces":   regexp.MustCompile(`GET .*/(namespaces|{namespace})$`),
	"Webhooks":     regexp.MustCompile(`/webhooks\b`),
	"Service":      regexp.MustCompile(`GET /\w+$`),
}

var conflicts = regexp.MustCompile(`/(pings?|leaves?|devices|changes|contacts|calls)\b|(PUT|DELETE) .*/availability$`)

// failures reports which errors an operation can return: by statuses with their own response, and others. A test
// in api compares them with the permissions of the routes and with the errors that the server returns.
func failures(operation string) map[string]bool {
	isAPI, connects := strings.Contains(operation, " /v1/"), strings.HasSuffix(operation, "/connect")
	conflict := conflicts.MatchString(operation)
	erases := strings.HasPrefix(operation, "DELETE ") && !conflict // with the scope admin
	fails := isAPI || strings.HasSuffix(operation, "/readyz")
	return map[string]bool{
		"401": isAPI && !connects, "403": isAPI, "429": isAPI, "503": fails, "default": fails,
		"404": strings.Contains(operation, "{") && !connects && !erases, "409": conflict,
	}
}

// responseOf returns the name of the response of errors with a status.
func responseOf(status string) string {
	code, _ := strconv.Atoi(status)
	if _, listed := failures("")[status]; !listed || code == 0 {
		return "Error"
	}
	return strings.ReplaceAll(http.StatusText(code), " ", "") + "Error" // no name of a code in clients
}

// patch applies a JSON merge patch (RFC 7396): objects are merged, null removes, everything else replaces. Examples are
// copied unchanged, because null in them means null.
func patch(target, change any) any {
	changes, ok := change.(object)
	if !ok {
		return change
	}
	merged, ok := target.(object)
	if !ok {
		merged = object{}
	}
	for name, value := range changes {
		switch {
		case value == nil:
			delete(merged, name)
		case strings.HasPrefix(name, "example"):
			merged[name] = value
		default:
			merged[name] = patch(merged[name], value)
		}
	}
	return merged
}

// errorExamples returns a patch that adds to the response of each status its schema and an example of each code.
func errorExamples(guide []guided) object {
	examples, responses := map[string]object{}, object{}
	for _, e := range guide {
		name := responseOf(strconv.Itoa(e.status))
		if examples[name] == nil {
			examples[name] = object{}
			responses[name] = object{"content": object{"application/problem+json": object{
				"schema": object{"$ref": "#/components/schemas/Problem"}, "examples": examples[name],
			}}}
		}
		examples[name][e.code] = object{
			"summary": fmt.Sprint(e.status, " ", e.title), "description": e.meaning + " " + e.remedy, "value": object{
				"type": "/docs/errors#" + e.code, "title": e.title, "status": e.status, "code": e.code,
				"detail": e.meaning, "request_id": "1wjm4ctkjpf5m",
			},
		}
	}
	return object{"components": object{"responses": responses}}
}
