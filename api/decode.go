package api

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// strict reads the types of bodies and frames.
var strict = request.Strict(
	json.UnmarshalFromFunc(decodeTime),
	json.UnmarshalFromFunc(request.DecodeScalar),
	json.UnmarshalFromFunc(decodeItem),
	json.UnmarshalFromFunc(request.DecodeDevice),
	json.UnmarshalFromFunc(decodeCallApp),
	request.ListOf[[]string](request.MaxUsers, request.DecodeString),
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
		return request.DecodeOptional(d, &i.Device, request.DecodeDevice)
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

// maxAhead is how far a ping or a leave may be ahead of the server's clock, in milliseconds.
const maxAhead = 5000

// parseAt reads the time in the field "at", a JSON string or number, which may be ahead of the server's clock by up to
// [maxAhead]. An omitted time is now.
func parseAt(raw jsontext.Value, now lastseen.Instant) (lastseen.Instant, error) {
	if len(raw) == 0 {
		return now, nil
	}
	text := string(raw)
	switch raw.Kind() {
	case '0':
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // which is valid JSON
		text = string(unquoted)
	default:
		return 0, errTimeType()
	}
	at, err := lastseen.ParseTime(text)
	switch {
	case err != nil:
		return 0, problem.Errorf(problem.InvalidTime, "at: %v.", err)
	case at < lastseen.MinInstant:
		return 0, problem.New(problem.InvalidTime, "at must be later than the start of 1970.")
	case at > now+maxAhead:
		return 0, problem.Errorf(problem.InvalidTime,
			"at (%s) is more than 5 seconds ahead of the server's clock (%s).", at, now)
	}
	return at, nil
}

// errTimeType is the error of a time that is neither a string nor a number.
func errTimeType() *problem.Error {
	return problem.New(problem.InvalidTime, "at must be a string or a number. Omit it to use the server's clock.")
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
