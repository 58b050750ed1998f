package main

import (
	"fmt"
	"strings"
)

// finishOperation applies the rules that hold for all operations.
func finishOperation(operation object, shared map[string]string) error {
	parameters, _ := operation["parameters"].([]any)
	for i, p := range parameters {
		if ref, ok := shared[parameterKey(p.(object))]; ok {
			parameters[i] = object{"$ref": ref}
		}
	}
	if body, ok := operation["requestBody"].(object); ok {
		delete(body, "x-originalParamName") // what the converter remembers
	}
	for status, r := range operation["responses"].(object) {
		response := r.(object)
		headers := within(response, "headers")
		for _, name := range []string{"X-Request-Id", "Cache-Control"} {
			if _, there := headers[name]; !there {
				headers[name] = header(name)
			}
		}
		if status == "503" {
			headers["Retry-After"] = header("Retry-After")
		}
		if status >= "400" {
			if err := finishProblem(response); err != nil {
				return fmt.Errorf("%v, %s: %w", operation["operationId"], status, err)
			}
		}
	}
	return nil
}

func header(name string) object { return object{"$ref": "#/components/headers/" + name} }

// finishProblem makes an error answer of its codes, which the annotation gives in place of a
// description.
func finishProblem(response object) error {
	codes := strings.Split(response["description"].(string), ", ")
	examples := object{}
	for _, code := range codes {
		if strings.ContainsAny(code, " .") {
			return fmt.Errorf("%q is no code", code)
		}
		examples[code] = object{"$ref": "#/components/examples/" + code}
	}
	response["description"] = "`" + strings.Join(codes, "`, `") + "`"
	response["content"] = object{"application/problem+json": object{
		"schema":   object{"$ref": "#/components/schemas/Problem"},
		"examples": examples,
	}}
	return nil
}
