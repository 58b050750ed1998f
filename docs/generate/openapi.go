package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api/problem"
)

// object is a JSON object.
type object = map[string]any

// overlayYAML has what Swagger 2.0 cannot express. See the comment at its top.
//
//go:embed overlay.yaml
var overlayYAML []byte

// openAPI converts a Swagger 2.0 document to OpenAPI 3.0 and adds the rules that hold for all operations, the overlay
// and an example of each error.
func openAPI(swagger object) (object, error) {
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
		for _, operation := range item.Operations() {
			finish(operation, strings.HasPrefix(path, "/v1/"), shared)
		}
	}
	var doc, changes object
	if err := remarshal(converted, &doc); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(overlayYAML, &changes); err != nil {
		return nil, err
	}
	return patch(patch(doc, changes), errorExamples()).(object), nil
}

// remarshal converts a value by way of JSON.
func remarshal(from, to any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, to)
}

// finish applies the rules that hold for all operations. They refer to the shared parameters, which are indexed by
// place and name. Those of the API take optional credentials. Those, and any with an annotated error, refer to the
// shared error response.
func finish(operation *openapi3.Operation, isAPI bool, shared map[string]string) {
	for i, p := range operation.Parameters {
		if ref, ok := shared[p.Value.In+" "+p.Value.Name]; ok {
			operation.Parameters[i] = &openapi3.ParameterRef{Ref: ref}
		}
	}
	if body := operation.RequestBody; body != nil {
		body.Value.Extensions = nil // for a conversion back to Swagger
	}
	if isAPI {
		operation.Security = &openapi3.SecurityRequirements{{"bearer": {}}, {}}
	}
	if isAPI || operation.Responses.Default() != nil {
		operation.Responses.Set("default", &openapi3.ResponseRef{Ref: "#/components/responses/Error"})
	}
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

// errorExamples returns a patch that adds an example of each code to the error response.
func errorExamples() object {
	examples := object{}
	for _, c := range problem.Types() {
		examples[string(c.Code)] = object{
			"summary": fmt.Sprint(c.Status, " ", c.Title), "description": c.Meaning + " " + c.Remedy, "value": object{
				"type": "/docs/errors#" + string(c.Code), "title": c.Title, "status": c.Status, "code": c.Code,
				"detail": c.Meaning, "request_id": "1wjm4ctkjpf5m",
			},
		}
	}
	content := object{"application/problem+json": object{"examples": examples}}
	return object{"components": object{"responses": object{"Error": object{"content": content}}}}
}
