package api

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// deviceBody is the JSON of a device.
type deviceBody struct {
	// The ID of the device: 1 to 64 bytes of UTF-8 without control characters, line breaks and bidirectional overrides.
	// Choose a random ID for each page load or app start.
	ID string `json:"id" minLength:"1" maxLength:"64"`
	// What the device is. Without it, what is stored does not change; a new device is other.
	Kind lastseen.DeviceKind `json:"kind" validate:"optional"`
	// Anything that describes the device, at most 1 KiB. Without it, what is stored does not change.
	Meta metadata `json:"meta" swaggertype:"object" validate:"optional"`
} // @name Device

// metadata is a JSON object that clients store with a device; empty for none.
type metadata string

// MarshalJSONTo writes the object, or null for none; see [json.MarshalerTo].
func (m metadata) MarshalJSONTo(e *jsontext.Encoder) error {
	if value := jsontext.Value(m); value.Kind() == '{' && value.IsValid() {
		return e.WriteValue(value)
	}
	return e.WriteToken(jsontext.Null)
}

// sighting validates a device and returns a sighting of it, without its user and time.
func (d *deviceBody) sighting() (store.DeviceEvent, *problem.Error) {
	if err := lastseen.CheckDevice(d.ID); err != nil {
		return store.DeviceEvent{}, problem.From(problem.InvalidDevice, err)
	}
	kind, err := lastseen.ParseDeviceKind(string(d.Kind))
	if err != nil {
		return store.DeviceEvent{}, problem.From(problem.InvalidDevice, err)
	}
	return store.DeviceEvent{ID: d.ID, Kind: kind, Meta: string(d.Meta)}, nil
}

// The activities of a device.
const (
	activityActive = "active"
	activityIdle   = "idle"
)

// parseActivity reads the activity of a device that was seen at a time, and returns since when the device is idle: 0 if
// it is active, as without an activity.
func parseActivity(activity string, at lastseen.Instant) (idle lastseen.Instant, err *problem.Error) {
	switch activity {
	case "", activityActive:
		return 0, nil
	case activityIdle:
		return at, nil
	default:
		return 0, problem.Errorf(problem.InvalidDevice, "Invalid activity %.40q: use active or idle.", activity)
	}
}

func decodeDevice(d *jsontext.Decoder, device *deviceBody) error {
	return request.DecodeObject(d, device, decodeDeviceField)
}

func decodeDeviceField(d *jsontext.Decoder, device *deviceBody, name string) error {
	switch name {
	case "id":
		return request.DecodeString(d, &device.ID)
	case "kind":
		return request.DecodeString(d, (*string)(&device.Kind))
	case "meta":
		return decodeMetadata(d, &device.Meta)
	default:
		return request.UnknownField[deviceBody](d)
	}
}

// decodeMetadata decodes an object that is small enough to keep.
func decodeMetadata(d *jsontext.Decoder, m *metadata) error {
	switch kind := d.PeekKind(); kind {
	case '{':
	case 'n':
		_, err := d.ReadToken()
		return err
	case 0:
		_, err := d.ReadToken()
		return err
	default:
		return problem.Errorf(problem.InvalidJSON, "meta is a JSON %s; an object is expected.", request.TypeName(kind))
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
	if err := request.CheckNumbers("meta", value, problem.InvalidDevice); err != nil {
		return err
	}
	*m = metadata(value)
	return nil
}

// endsWithin reports whether an object at the start of a text ends in it.
func endsWithin(text []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // what follows does not count; outside of strings, both are errors
		case '"':
			inString = !inString
		case '{':
			if !inString {
				depth++
			}
		case '}':
			if !inString {
				depth--
			}
		}
		if depth == 0 {
			return true
		}
	}
	return false
}
