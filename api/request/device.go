package request

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// Device is the JSON of a device.
type Device struct {
	// The ID of the device: 1 to 64 bytes of UTF-8 without control characters, line breaks and bidirectional overrides.
	// Choose a random ID for each page load or app start.
	ID string `json:"id" minLength:"1" maxLength:"64"`
	// What the device is. Without it, what is stored does not change; a new device is other.
	Kind lastseen.DeviceKind `json:"kind" validate:"optional"`
	// Anything that describes the device, at most 1 KiB. Without it, what is stored does not change.
	Meta Meta `json:"meta" swaggertype:"object" validate:"optional"`
} // @name Device

// Meta is a JSON object that clients store with a device; empty for none.
type Meta string

// MarshalJSONTo writes the object, or null for none; see [json.MarshalerTo].
func (m Meta) MarshalJSONTo(e *jsontext.Encoder) error {
	if value := jsontext.Value(m); value.Kind() == '{' && value.IsValid() {
		return e.WriteValue(value)
	}
	return e.WriteToken(jsontext.Null)
}

// Check validates a device, and returns its kind.
func (d *Device) Check() (lastseen.DeviceKind, *problem.Error) {
	if err := lastseen.CheckDevice(d.ID); err != nil {
		return "", problem.From(problem.InvalidDevice, err)
	}
	kind, err := lastseen.ParseDeviceKind(string(d.Kind))
	if err != nil {
		return "", problem.From(problem.InvalidDevice, err)
	}
	return kind, nil
}

// DecodeDevice decodes a device.
func DecodeDevice(d *jsontext.Decoder, device *Device) error {
	return DecodeObject(d, device, decodeDeviceField)
}

func decodeDeviceField(d *jsontext.Decoder, device *Device, name string) error {
	switch name {
	case "id":
		return DecodeString(d, &device.ID)
	case "kind":
		return DecodeString(d, (*string)(&device.Kind))
	case "meta":
		return decodeMetadata(d, &device.Meta)
	default:
		return UnknownField[Device](d)
	}
}

// decodeMetadata decodes an object that is small enough to keep.
func decodeMetadata(d *jsontext.Decoder, m *Meta) error {
	switch kind := d.PeekKind(); kind {
	case '{':
	case 'n', 0:
		_, err := d.ReadToken()
		return err
	default:
		return problem.Errorf(problem.InvalidJSON, "meta is a JSON %s; an object is expected.", TypeName(kind))
	}
	// A value is not read unless it is short: reading one takes memory for all names in it.
	rest := d.UnreadBuffer()
	rest = rest[bytes.IndexByte(rest, '{'):]
	if len(rest) > lastseen.MaxMetaLen && !endsWithin(rest[:lastseen.MaxMetaLen]) {
		return problem.Errorf(problem.InvalidDevice, "meta has more than %d bytes: send less.", lastseen.MaxMetaLen)
	}
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	if err := CheckNumbers("meta", value, problem.InvalidDevice); err != nil {
		return err
	}
	*m = Meta(value)
	return nil
}

// endsWithin reports whether a value at the start of a text ends in it, or is not valid.
func endsWithin(text []byte) bool {
	return !errors.Is(jsontext.NewDecoder(bytes.NewReader(text)).SkipValue(), io.ErrUnexpectedEOF)
}
