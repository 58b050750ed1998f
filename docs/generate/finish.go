package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lastseen/lastseen/api"
)

// finishOperation applies the rules that hold for all operations. The shared parameters are known by
// parameterKey.
func finishOperation(operation object, shared map[string]string) error {
	parameters, _ := operation["parameters"].([]any)
	for i, p := range parameters {
		if ref, ok := shared[parameterKey(p.(object))]; ok {
			parameters[i] = object{"$ref": ref}
		}
	}
	if body, ok := operation["requestBody"].(object); ok {
		delete(body, "x-originalParamName") // which only a way back would need
	}
	if security, ok := operation["security"].([]any); ok {
		operation["security"] = append(security, object{}) // an open server asks nobody
	}
	for status, response := range operation["responses"].(object) {
		for _, name := range headersOf(status) {
			within(response.(object), "headers")[name] = header(name)
		}
		if err := finishResponse(response.(object), status >= "400"); err != nil {
			return fmt.Errorf("%v, %s: %w", operation["operationId"], status, err)
		}
	}
	return nil
}

// headersOf returns the headers of all answers with a status.
func headersOf(status string) []string {
	switch status {
	case "401", "403":
		return []string{"WWW-Authenticate"}
	case "429":
		return []string{"Retry-After", "RateLimit", "RateLimit-Policy"}
	case "503":
		return []string{"Retry-After"}
	default:
		return nil
	}
}

// finishResponse adds the headers of every answer, and makes a problem of an error.
func finishResponse(response object, isError bool) error {
	headers := within(response, "headers")
	for _, name := range []string{"X-Request-Id", "Cache-Control"} {
		if _, there := headers[name]; !there {
			headers[name] = header(name)
		}
	}
	if isError {
		return finishProblem(response)
	}
	return nil
}

func header(name string) object { return object{"$ref": "#/components/headers/" + name} }

// finishProblem makes an error answer of its codes, which an annotation gives in place of a
// description.
func finishProblem(response object) error {
	codes, examples := strings.Split(response["description"].(string), ", "), object{}
	for _, code := range codes {
		if !slices.ContainsFunc(api.ErrorCodes(), func(c api.ErrorCode) bool { return c.Code == code }) {
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
