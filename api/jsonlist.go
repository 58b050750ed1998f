package api

import (
	"bytes"
	"errors"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
			return errTimeKind()
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
			return errTimeKind()
		}
		raw, err := d.ReadValue()
		into.At = raw.Clone()
		return err
	default:
		return &json.SemanticError{Err: json.ErrUnknownName, JSONPointer: d.StackPointer(), GoType: reflect.TypeFor[item]()}
	}
}

// atIndex adds the index of an item to an error of ours.
func atIndex(index int, err error) error {
	var known *apiError
	if !errors.As(err, &known) {
		return err
	}
	var bad itemErrors
	bad.add(index, known)
	return bad.err()
}
