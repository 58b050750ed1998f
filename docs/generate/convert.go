package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api"
)

// object is a JSON object of a document that is being finished.
type object = map[string]any

// overlayYAML is what Swagger 2.0 cannot say. See the comment at its top.
//
//go:embed overlay.yaml
var overlayYAML []byte

// openAPI converts a Swagger 2.0 document to OpenAPI 3.0 and finishes it: rules that hold for all
// operations first, then the overlay.
func openAPI(swagger []byte) (object, error) {
	doc, err := convert(swagger)
	if err != nil {
		return nil, err
	}
	var overlay object
	if err := yaml.Unmarshal(overlayYAML, &overlay); err != nil {
		return nil, fmt.Errorf("overlay.yaml: %w", err)
	}
	doc = patch(doc, overlay).(object)
	components := within(doc, "components")
	components["examples"] = problemExamples()
	shared := sharedParameters(within(components, "parameters"))
	for name, response := range within(components, "responses") {
		if name == "Options" {
			continue // the router's own answer
		}
		if err := finishResponse(response.(object), true); err != nil {
			return nil, err
		}
	}
	for _, path := range within(doc, "paths") {
		for _, operation := range path.(object) {
			if err := finishOperation(operation.(object), shared); err != nil {
				return nil, err
			}
		}
	}
	return doc, nil
}

// convert turns Swagger 2.0 into OpenAPI 3.0.3.
func convert(swagger []byte) (object, error) {
	var old openapi2.T
	if err := json.Unmarshal(swagger, &old); err != nil {
		return nil, err
	}
	converted, err := openapi2conv.ToV3(&old)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(converted)
	if err != nil {
		return nil, err
	}
	var doc object
	err = json.Unmarshal(encoded, &doc)
	return doc, err
}

// patch applies a JSON merge patch, RFC 7396: objects are merged, null removes, all else replaces. Only
// examples replace as they are, since null in them means null.
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

// within returns the object of that name in an object, which is made if there is none.
func within(o object, name string) object {
	inner, ok := o[name].(object)
	if !ok {
		inner = object{}
		o[name] = inner
	}
	return inner
}

// sharedParameters indexes the parameters that the overlay describes once for all operations.
func sharedParameters(parameters object) map[string]string {
	refs := map[string]string{}
	for key, p := range parameters {
		refs[parameterKey(p.(object))] = "#/components/parameters/" + key
	}
	return refs
}

func parameterKey(p object) string { return fmt.Sprint(p["in"], " ", p["name"]) }

// problemExamples has one error answer for each code.
func problemExamples() object {
	examples := object{}
	for _, c := range api.ErrorCodes() {
		examples[c.Code] = object{"summary": c.Title, "description": c.Meaning + " " + c.Remedy, "value": object{
			"type": "/docs/errors#" + c.Code, "title": c.Title, "status": c.Status, "code": c.Code,
			"detail": c.Meaning, "request_id": "1wjm4ctkjpf5m",
		}}
	}
	return examples
}
