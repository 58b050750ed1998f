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
		return errorf(codeInvalidJSON, "%s is a JSON %s; %v is expected.",
			cmp.Or(string(semantic.JSONPointer), "The body"), jsonTypeName(semantic.JSONKind), semantic.Err)
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
			return errorf(codeTooManyItems,
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
		return newError(codeInvalidJSON, "The JSON begins with a byte order mark: send UTF-8 without one.")
	}
	switch err := lastseen.CheckJSON(text, maxItems); {
	case errors.Is(err, lastseen.ErrTooDeep):
		return errorf(codeInvalidJSON, "The JSON has %v.", err)
	case err != nil:
		return errorf(codeTooManyItems,
			"A list has more than %d items, the maximum of bulk requests. Others have lower limits.", maxItems)
	}
	return nil
}

// outOfRange returns the first number in a value that is beyond a float64, or "". Clients that get the value could not
// read it: to many, all numbers are float64.
func outOfRange(value jsontext.Value) string {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return "" // the end: the value is valid
		}
		if token.Kind() == '0' {
			if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
				return token.String()
			}
		}
	}
}
