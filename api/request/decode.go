package request

import (
	"bytes"
	"cmp"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// MaxItems is the number of items that any list in a body can have.
const MaxItems = 10_000

// Unmarshal decodes exactly one JSON object, strictly: duplicate and unknown names and invalid UTF-8 are errors. The
// options are those of [Strict].
func Unmarshal(data []byte, v any, strict json.Options) error {
	if err := CheckForm(data); err != nil {
		return err
	}
	return UnmarshalChecked(data, v, strict)
}

// UnmarshalChecked is [Unmarshal] for a text, or a part of one, that [CheckForm] has found good.
func UnmarshalChecked(data []byte, v any, strict json.Options) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '{' {
		return problem.New(problem.InvalidJSON, "The JSON is not an object.")
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), strict)
	var known *problem.Error
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
		return problem.Errorf(problem.InvalidJSON, "%s is a JSON %s; %v is expected.",
			cmp.Or(string(semantic.JSONPointer), "The body"), TypeName(semantic.JSONKind), semantic.Err)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return problem.New(problem.InvalidJSON, "Duplicate name in an object.")
	case errors.As(err, &syntactic):
		return problem.Errorf(problem.InvalidJSON, "Invalid JSON at byte %d: %v.", syntactic.ByteOffset, syntactic.Err)
	default:
		return &problem.Error{Code: problem.InvalidJSON, Detail: "Invalid JSON.", Cause: err}
	}
}

// unknownField is the error of an unknown field. It names the allowed ones.
func unknownField(e *json.SemanticError) *problem.Error {
	where := ""
	if parent := e.JSONPointer.Parent(); parent != "" {
		where = " in " + string(parent)
	}
	return problem.Errorf(problem.UnknownField, "Unknown field %.40q%s. Allowed: %s.",
		e.JSONPointer.LastToken(), where, strings.Join(fieldNames(e.GoType), ", "))
}

// fieldNames returns the JSON names of a struct's fields, including those of inlined structs.
func fieldNames(t reflect.Type) (names []string) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		if !field.Anonymous {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// TypeName returns the name of the type of a JSON value.
func TypeName(k jsontext.Kind) string {
	names := map[jsontext.Kind]string{'{': "object", '[': "array", '"': "string", '0': "number", 'n': "null"}
	return cmp.Or(names[k], "boolean")
}

// Strict returns options that stop the decoding where a body is known to be wrong. Package json alone would read a list
// to its end, however long, and a value of a wrong type, too, and would keep all names in it to detect duplicates. It
// would also take twice the time for lists. The unmarshalers are those of types that Strict does not know, and of
// lists: see [ListOf].
func Strict(more ...*json.Unmarshalers) json.Options {
	return json.WithUnmarshalers(json.JoinUnmarshalers(append(more,
		json.UnmarshalFromFunc(DecodeString), json.UnmarshalFromFunc(decodeBool))...))
}

// ListOf returns an unmarshaler of arrays of up to max items.
func ListOf[L ~[]T, T any](max int, decode func(*jsontext.Decoder, *T) error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *L) error {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		if token.Kind() != '[' {
			return WrongType(d, token, "an array")
		}
		*list = L{}
		for n := 0; d.PeekKind() != ']'; n++ {
			if n == max {
				return problem.Errorf(problem.TooManyItems,
					"There are more than %[1]d items: send at most %[1]d in one request.", max)
			}
			*list = append(*list, *new(T))
			if err := decode(d, &(*list)[n]); err != nil {
				return problem.AtIndex(n, err)
			}
		}
		_, err = d.ReadToken()
		return err
	})
}

// DecodeObject decodes an object, or null as one without fields. The function field decodes the field of a name: see
// [UnknownField].
func DecodeObject[T any](d *jsontext.Decoder, v *T, field func(*jsontext.Decoder, *T, string) error) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '{':
		return WrongType(d, token, "an object")
	}
	for d.PeekKind() != '}' {
		if token, err = d.ReadToken(); err != nil {
			return err
		}
		if err = field(d, v, token.String()); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// UnknownField returns the error of a field that the object T does not have, whose name was read.
func UnknownField[T any](d *jsontext.Decoder) error {
	return &json.SemanticError{Err: json.ErrUnknownName, JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[T]()}
}

// DecodeOptional decodes a value, or null as none.
func DecodeOptional[T any](d *jsontext.Decoder, v **T, decode func(*jsontext.Decoder, *T) error) error {
	if d.PeekKind() == 'n' {
		_, err := d.ReadToken()
		return err
	}
	*v = new(T)
	return decode(d, *v)
}

// DecodeString decodes a string, or null as an empty one.
func DecodeString(d *jsontext.Decoder, s *string) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '"':
		return WrongType(d, token, "a string")
	}
	*s = token.String()
	return nil
}

// decodeBool decodes true or false, or null as an omitted value.
func decodeBool(d *jsontext.Decoder, v *bool) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != 't' && token.Kind() != 'f':
		return WrongType(d, token, "true or false")
	}
	*v = token.Bool()
	return nil
}

// WrongType is the error of a token that was read where a value of another type is expected.
func WrongType(d *jsontext.Decoder, token jsontext.Token, expected string) error {
	return &json.SemanticError{JSONKind: token.Kind(), JSONPointer: d.StackPointer(), Err: errors.New(expected)}
}

// CheckForm returns an error if a text begins with a byte order mark, has more than [lastseen.MaxDepth] levels of
// objects and arrays, or has an array in its object with more than MaxItems, which none can have. It is called before
// the text is parsed, which takes time for each level and item. The text need not be valid.
func CheckForm(text []byte) error {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return problem.New(problem.InvalidJSON, "The JSON begins with a byte order mark: send UTF-8 without one.")
	}
	switch err := lastseen.CheckJSON(text, MaxItems); {
	case errors.Is(err, lastseen.ErrTooDeep):
		return problem.Errorf(problem.InvalidJSON, "The JSON has %v.", err)
	case err != nil:
		return problem.Errorf(problem.TooManyItems,
			"A list has more than %d items, the maximum of bulk requests. Others have lower limits.", MaxItems)
	}
	return nil
}

// CheckNumbers returns an error if a field has a number beyond a float64. Clients that get the value could not read it:
// to many, all numbers are float64.
func CheckNumbers(field string, value jsontext.Value, invalid problem.Code) error {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil // the end: the value is valid
		}
		if token.Kind() != '0' {
			continue
		}
		if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
			return problem.Errorf(invalid,
				"%s has the number %.40s, which is too large for JSON in most languages.", field, token.String())
		}
	}
}
