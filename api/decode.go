package api

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
	"github.com/lastseen/lastseen/store"
)

const (
	maxItems  = 10_000 // pings or leaves in one request in JSON
	maxLookup = 1000   // users in one lookup
)

// unmarshal decodes exactly one JSON object, strictly: duplicate and unknown names and invalid UTF-8 are errors.
func unmarshal(data []byte, v any) error {
	if err := checkForm(data); err != nil {
		return err
	}
	return unmarshalChecked(data, v)
}

// unmarshalChecked is unmarshal for a text, or a part of one, that [checkForm] has found good.
func unmarshalChecked(data []byte, v any) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '{' {
		return problem.New(problem.InvalidJSON, "The body is not a JSON object.")
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
			cmp.Or(string(semantic.JSONPointer), "The body"), jsonTypeName(semantic.JSONKind), semantic.Err)
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

func jsonTypeName(k jsontext.Kind) string {
	names := map[jsontext.Kind]string{'{': "object", '[': "array", '"': "string", '0': "number", 'n': "null"}
	return cmp.Or(names[k], "boolean")
}

// strict stops the decoding where a body is known to be wrong. Package json alone would read a list to its end, however
// long, and a value of a wrong type, too, and would keep all names in it to detect duplicates. It would also take twice
// the time for lists.
var strict = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(decodeString),
	json.UnmarshalFromFunc(decodeTime),
	json.UnmarshalFromFunc(decodeScalar),
	json.UnmarshalFromFunc(decodeBool),
	json.UnmarshalFromFunc(decodeItem),
	json.UnmarshalFromFunc(decodeDevice),
	json.UnmarshalFromFunc(decodeCallApp),
	listOf(maxLookup, decodeString),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, ids *contactIDs) error {
		return decodeList(d, (*[]string)(ids), store.MaxContacts, decodeString)
	}),
	listOf(maxItems, decodeItem),
))

// listOf returns an unmarshaler of arrays of up to max items.
func listOf[T any](max int, decode func(*jsontext.Decoder, *T) error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		return decodeList(d, list, max, decode)
	})
}

// decodeList decodes an array of up to max items.
func decodeList[T any](d *jsontext.Decoder, list *[]T, max int, decode func(*jsontext.Decoder, *T) error) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != '[' {
		return wrongType(d, token, "an array")
	}
	*list = []T{}
	for n := 0; d.PeekKind() != ']'; n++ {
		if n == max {
			return problem.Errorf(problem.TooManyItems,
				"There are more than %[1]d items: send at most %[1]d in one request.", max)
		}
		*list = append(*list, *new(T))
		if err := decode(d, &(*list)[n]); err != nil {
			return atIndex(n, err)
		}
	}
	_, err = d.ReadToken()
	return err
}

// decodeObject decodes an object, or null as one without fields. The function field decodes one field, with its name.
func decodeObject[T any](d *jsontext.Decoder, v *T, field func(*jsontext.Decoder, *T) error) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '{':
		return wrongType(d, token, "an object")
	}
	for err == nil && d.PeekKind() != '}' {
		err = field(d, v)
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}

func decodeItem(d *jsontext.Decoder, i *item) error { return decodeObject(d, i, decodeField) }

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
	case "device":
		return decodeOptional(d, &i.Device, decodeDevice)
	case "activity":
		return decodeString(d, &i.Activity)
	case "after":
		return decodeString(d, &i.After)
	default:
		return &json.SemanticError{
			Err: json.ErrUnknownName, JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[item](),
		}
	}
}

// decodeOptional decodes a value, or null as none.
func decodeOptional[T any](d *jsontext.Decoder, v **T, decode func(*jsontext.Decoder, *T) error) error {
	if d.PeekKind() == 'n' {
		_, err := d.ReadToken()
		return err
	}
	*v = new(T)
	return decode(d, *v)
}

// decodeString decodes a string, or null as an empty one.
func decodeString(d *jsontext.Decoder, s *string) error {
	token, err := d.ReadToken()
	switch {
	case err != nil || token.Kind() == 'n':
		return err
	case token.Kind() != '"':
		return wrongType(d, token, "a string")
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

// wrongType is the error of a token that was read where a value of another type is expected.
func wrongType(d *jsontext.Decoder, token jsontext.Token, expected string) error {
	return &json.SemanticError{JSONKind: token.Kind(), JSONPointer: d.StackPointer(), Err: errors.New(expected)}
}

// checkForm returns an error if a text begins with a byte order mark, has more than [lastseen.MaxDepth] levels of
// objects and arrays, or has an array in its object with more than maxItems, which none can have. It is called before
// the text is parsed, which takes time for each level and item. The text need not be valid.
func checkForm(text []byte) error {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return problem.New(problem.InvalidJSON, "The JSON begins with a byte order mark: send UTF-8 without one.")
	}
	switch err := lastseen.CheckJSON(text, maxItems); {
	case errors.Is(err, lastseen.ErrTooDeep):
		return problem.Errorf(problem.InvalidJSON, "The JSON has %v.", err)
	case err != nil:
		return problem.Errorf(problem.TooManyItems,
			"A list has more than %d items, the maximum of bulk requests. Others have lower limits.", maxItems)
	}
	return nil
}

// checkNumbers returns an error if a field has a number beyond a float64. Clients that get the value could not read it:
// to many, all numbers are float64.
func checkNumbers(field string, value jsontext.Value, invalid problem.Code) error {
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
