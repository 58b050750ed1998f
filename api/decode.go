package api

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
)

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
			place(semantic.JSONPointer), jsonTypeName(semantic.JSONKind), goTypeName(semantic.GoType))
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

func jsonTypeName(k jsontext.Kind) string {
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

// What follows decodes bodies and stops where one is known to be wrong. Package json would go on: it reads a list to
// its end, however long, and a value of the wrong kind, too, and keeps all names in it to find those given twice.

// decodeOne decodes bodies about one user. Their strings and times are refused before they are read if they are
// objects or arrays.
var decodeOne = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *string) error {
		if kind := d.PeekKind(); kind == '{' || kind == '[' {
			return &json.SemanticError{JSONKind: kind, GoType: reflect.TypeFor[string]()}
		}
		return errors.ErrUnsupported // package json is to decode it
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *jsontext.Value) error {
		if kind := d.PeekKind(); kind == '{' || kind == '[' {
			return errTimeType()
		}
		return errors.ErrUnsupported
	}),
))

// listKind is a kind of list.
type listKind struct {
	most   int  // items
	begins byte // every item
	each   int  // bytes of memory that an item takes until it is answered, beside its text
	decode json.Options
}

// The kinds of lists. What an item takes is measured by TestDecodedMemory.
var (
	itemList   = listKind{maxItems, '{', 192, listOf(maxItems, decodeItem)}
	lookupList = listKind{maxLookup, ',', 512, listOf(maxLookup, decodeString)}
)

// memory returns how many bytes a list takes once it is decoded, at most: its strings are no longer than the text.
func (k listKind) memory(text []byte) int {
	items := 1 + bytes.Count(text, []byte{k.begins}) + bytes.Count(text, []byte("null")) // an item may be null
	return len(text) + k.each*min(items, k.most)
}

// listOf decodes arrays of so many items at most. The item after those ends the decoding.
func listOf[T any](most int, decode func(*jsontext.Decoder, *T) error) json.Options {
	return json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		if err := begin(d, '[', reflect.TypeFor[[]T]()); err != nil {
			return err
		}
		*list = []T{}
		for d.PeekKind() != ']' {
			if len(*list) == most {
				return errorf(codeTooManyItems, "There are more than %d items: send at most %d in one request.", most, most)
			}
			var none T
			*list = append(*list, none)
			if err := decode(d, &(*list)[len(*list)-1]); err != nil {
				return atIndex(len(*list)-1, err)
			}
		}
		_, err := d.ReadToken()
		return err
	}))
}

// begin reads the beginning of an object or array of a Go type.
func begin(d *jsontext.Decoder, kind jsontext.Kind, t reflect.Type) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != kind {
		err = wrongKind(d, token, t)
	}
	return err
}

// wrongKind is the error of a token that was read where another type belongs.
func wrongKind(d *jsontext.Decoder, token jsontext.Token, t reflect.Type) error {
	return &json.SemanticError{JSONKind: token.Kind(), GoType: t, JSONPointer: d.StackPointer()}
}

// decodeString decodes a string; null is an empty one.
func decodeString(d *jsontext.Decoder, into *string) error {
	token, err := d.ReadToken()
	switch {
	case err != nil:
		return err
	case token.Kind() == '"':
		*into = token.String()
	case token.Kind() != 'n':
		return wrongKind(d, token, reflect.TypeFor[string]())
	}
	return nil
}

// decodeItem decodes a ping or leave of many; null is one without fields.
func decodeItem(d *jsontext.Decoder, into *item) error {
	if d.PeekKind() == 'n' {
		_, err := d.ReadToken()
		return err
	}
	if err := begin(d, '{', reflect.TypeFor[item]()); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		if err := decodeField(d, into); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// decodeField decodes a field of an item.
func decodeField(d *jsontext.Decoder, into *item) error {
	quoted, err := d.ReadValue()
	if err != nil {
		return err
	}
	var buffer [8]byte
	name, err := jsontext.AppendUnquote(buffer[:0], quoted)
	if err != nil {
		return err
	}
	switch string(name) {
	case "user":
		return decodeString(d, &into.User)
	case "at":
		if kind := d.PeekKind(); kind == '{' || kind == '[' {
			return errTimeType()
		}
		raw, err := d.ReadValue()
		into.At = raw.Clone()
		return err
	default:
		return &json.SemanticError{Err: json.ErrUnknownName, JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[item]()}
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
		return 0, errTimeType()
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

// errTimeType is the error of a time that is of another kind than times are.
func errTimeType() *apiError {
	return newError(codeInvalidTime, "at must be a string or a number. Omit it to use the server's clock.")
}
