package api

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

const (
	maxBody       = 1 << 20   // bytes of a JSON body
	maxLookupBody = 512 << 10 // the same, of a lookup
	maxAssertion  = 16 << 10  // the same, about one user; most of it is for a token
	maxAhead      = 5000      // milliseconds that a ping or leave may be ahead of the server
)

const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
)

// mediaType returns the type of the body: mediaJSON or mediaNDJSON. What curl and browsers send by
// default is read as JSON.
func mediaType(c echo.Context) (string, error) {
	header := c.Request().Header
	if encoding := header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return "", errorf(codeUnsupportedMediaType, "Unsupported content encoding %.40q: send the body unencoded.", encoding)
	}
	value := header.Get(echo.HeaderContentType)
	if value == "" {
		return mediaJSON, nil
	}
	media, params, err := mime.ParseMediaType(value)
	charset := strings.ToLower(params["charset"])
	if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "", errorf(codeUnsupportedMediaType, "Invalid content type or charset in %.60q: send %s in UTF-8.", value, mediaJSON)
	}
	switch media {
	case mediaJSON, "text/plain", "application/x-www-form-urlencoded":
		return mediaJSON, nil
	case mediaNDJSON:
		return mediaNDJSON, nil
	default:
		return "", errorf(codeUnsupportedMediaType, "Unsupported content type %.60q: send %s.", value, mediaJSON)
	}
}

// bodyError says why a body could not be read to its end.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return errorf(codeBodyTooLarge, "The body has more than %d bytes: send a smaller one.", tooLarge.Limit)
	}
	e := newError(codeInvalidJSON, "The body is incomplete or arrived too slowly.")
	e.cause = err
	return e
}

// unmarshal reads exactly one JSON object, strictly: see the defaults of package json, which also
// refuses names given twice and anything that is not UTF-8.
func unmarshal(data []byte, v any, decode json.Options) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '{' {
		return newError(codeInvalidJSON, "The body is not a JSON object.")
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), decode)
	var known *apiError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return unknownField(semantic)
	case errors.As(err, &semantic):
		return errorf(codeInvalidJSON, "%s is a %s; %s is expected.",
			place(semantic.JSONPointer), kindName(semantic.JSONKind), expected(semantic.GoType))
	case errors.Is(err, jsontext.ErrDuplicateName):
		return newError(codeInvalidJSON, "Duplicate name in an object.")
	case errors.As(err, &syntactic):
		return errorf(codeInvalidJSON, "Invalid JSON at byte %d: %v.", syntactic.ByteOffset, syntactic.Err)
	default:
		return &apiError{code: codeInvalidJSON, detail: "Invalid JSON.", cause: err}
	}
}

// unknownField says which field is unknown, where, and which are allowed there.
func unknownField(e *json.SemanticError) *apiError {
	where := ""
	if parent := e.JSONPointer.Parent(); parent != "" {
		where = " in " + string(parent)
	}
	return errorf(codeUnknownField, "Unknown field %.40q%s. Allowed: %s.",
		e.JSONPointer.LastToken(), where, strings.Join(fieldNames(e.GoType), ", "))
}

// fieldNames returns the JSON names of a struct's fields, those of inlined structs included; none for another type.
func fieldNames(t reflect.Type) (names []string) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			names = append(names, fieldNames(field.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

func place(p jsontext.Pointer) string {
	if p == "" {
		return "The body"
	}
	return string(p)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{', '}':
		return "JSON object"
	case '[', ']':
		return "JSON array"
	case '"':
		return "JSON string"
	case '0':
		return "JSON number"
	default:
		return "JSON literal"
	}
}

func expected(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "another type"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// parseAt reads the time in the field "at", a JSON string or number; none means the server's time,
// now. It may be at most maxAhead in the future.
func parseAt(raw jsontext.Value, now lastseen.Instant) (lastseen.Instant, error) {
	if len(raw) == 0 {
		return now, nil
	}
	text := string(raw)
	switch raw.Kind() {
	case '0':
	case '"':
		unquoted, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return 0, errorf(codeInvalidJSON, "at: %v.", err)
		}
		text = string(unquoted)
	default:
		return 0, errTimeKind()
	}
	at, err := lastseen.ParseTime(text)
	switch {
	case err != nil:
		return 0, errorf(codeInvalidTime, "at: %v.", err)
	case at < lastseen.MinInstant:
		return 0, newError(codeInvalidTime, "at must be later than the start of 1970.")
	case at > now+maxAhead:
		return 0, errorf(codeInvalidTime, "at (%s) is more than 5 seconds ahead of the server's clock (%s).", at, now)
	}
	return at, nil
}

// errTimeKind is the error of a time that is of another kind than times are.
func errTimeKind() *apiError {
	return newError(codeInvalidTime, "at must be a string or a number. Omit it to use the server's clock.")
}
