package api

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// strict reads the types of bodies and frames.
var strict = request.Strict(
	json.UnmarshalFromFunc(decodeTime),
	json.UnmarshalFromFunc(decodeScalar),
	json.UnmarshalFromFunc(decodeItem),
	json.UnmarshalFromFunc(decodeDevice),
	json.UnmarshalFromFunc(decodeCallApp),
	request.ListOf[[]string](maxLookup, request.DecodeString),
	request.ListOf[contactIDs](store.MaxContacts, request.DecodeString),
	request.ListOf[[]item](request.MaxItems, decodeItem),
)

func decodeItem(d *jsontext.Decoder, i *item) error { return request.DecodeObject(d, i, decodeField) }

func decodeField(d *jsontext.Decoder, i *item, name string) error {
	switch name {
	case "user":
		return request.DecodeString(d, &i.User)
	case "at":
		return decodeTime(d, &i.At)
	case "device":
		return request.DecodeOptional(d, &i.Device, decodeDevice)
	case "activity":
		return request.DecodeString(d, &i.Activity)
	case "after":
		return request.DecodeString(d, &i.After)
	default:
		return request.UnknownField[item](d)
	}
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

// decodeScalar decodes a scalar.
func decodeScalar(d *jsontext.Decoder, s *scalar) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if kind := token.Kind(); kind != '"' && kind != '0' {
		return request.WrongType(d, token, "a string or a number")
	}
	*s = scalar(token.String())
	return nil
}
