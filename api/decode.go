package api

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxItems  = 10_000 // pings or leaves in one request in JSON
	maxLookup = 1000   // users in one lookup
)

// unmarshal decodes exactly one JSON object, strictly: duplicate and unknown names and invalid UTF-8 are errors.
func unmarshal(data []byte, v any) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '{' {
		return newError(codeInvalidJSON, "The body is not a JSON object.")
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), strict)
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
			place(semantic.JSONPointer), jsonTypeName(semantic.JSONKind), goTypeName(semantic.GoType))
	case errors.Is(err, jsontext.ErrDuplicateName):
		return newError(codeInvalidJSON, "Duplicate name in an object.")
	case errors.As(err, &syntactic):
		return errorf(codeInvalidJSON, "Invalid JSON at byte %d: %v.", syntactic.ByteOffset, syntactic.Err)
	default:
		return &apiError{code: codeInvalidJSON, detail: "Invalid JSON.", cause: err}
	}
}

// unknownField is the error of an unknown field. It names the allowed ones.
func unknownField(e *json.SemanticError) *apiError {
	where := ""
	if parent := e.JSONPointer.Parent(); parent != "" {
		where = " in " + string(parent)
	}
	return errorf(codeUnknownField, "Unknown field %.40q%s. Allowed: %s.",
		e.JSONPointer.LastToken(), where, strings.Join(fieldNames(e.GoType), ", "))
}

// fieldNames returns the JSON names of a struct's fields, including those of inlined structs.
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

func jsonTypeName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "JSON object"
	case '[':
		return "JSON array"
	case '"':
		return "JSON string"
	case '0':
		return "JSON number"
	default:
		return "JSON literal"
	}
}

func goTypeName(t reflect.Type) string {
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

// strict stops the decoding where a body is known to be wrong. Package json alone would read a list to its end, however
// long, and a value of a wrong type, too, and would keep all names in it to detect duplicates. It would also take twice
// the time for lists.
var strict = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(decodeString),
	json.UnmarshalFromFunc(decodeTime),
	json.UnmarshalFromFunc(decodeItem),
	listOf(maxLookup, decodeString),
	listOf(maxItems, decodeItem),
))

// listOf returns an unmarshaler of arrays of up to max items.
func listOf[T any](max int, decode func(*jsontext.Decoder, *T) error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		if token.Kind() != '[' {
			return wrongType[[]T](d, token)
		}
		*list = []T{}
		for n := 0; d.PeekKind() != ']'; n++ {
			if n == max {
				return errorf(codeTooManyItems, "There are more than %d items: send at most %d in one request.", max,
					max)
			}
			*list = append(*list, *new(T))
			if err := decode(d, &(*list)[n]); err != nil {
				return atIndex(n, err)
			}
		}
		_, err = d.ReadToken()
		return err
	})
}

// decodeItem decodes an object, or null as an item without fields.
func decodeItem(d *jsontext.Decoder, i *item) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '{':
		return wrongType[item](d, token)
	}
	for err == nil && d.PeekKind() != '}' {
		err = decodeField(d, i)
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}

func decodeField(d *jsontext.Decoder, i *item) error {
	name, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch name.String() {
	case "user":
		return decodeString(d, &i.User)
	case "at":
		return decodeTime(d, &i.At)
	default:
		return &json.SemanticError{
			Err: json.ErrUnknownName, JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[item](),
		}
	}
}

// decodeString decodes a string, or null as an empty one.
func decodeString(d *jsontext.Decoder, s *string) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '"':
		return wrongType[string](d, token)
	}
	*s = token.String()
	return nil
}

// decodeTime keeps any value that is not an object or an array, for parseAt.
func decodeTime(d *jsontext.Decoder, v *jsontext.Value) error {
	if kind := d.PeekKind(); kind == '{' || kind == '[' {
		return errTimeType()
	}
	raw, err := d.ReadValue()
	*v = raw.Clone()
	return err
}

// wrongType is the error of a token that was read where a T belongs.
func wrongType[T any](d *jsontext.Decoder, token jsontext.Token) error {
	return &json.SemanticError{JSONKind: token.Kind(), JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[T]()}
}
