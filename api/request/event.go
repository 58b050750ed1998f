package request

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// Event is a ping or a leave, as it was sent.
type Event struct {
	At     jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	Device *Device        `json:"device" validate:"optional"`
	// Only for pings: whether the person uses the device. It requires a device. Default: active.
	Activity string `json:"activity" validate:"optional"`
	// Only for leaves: how long to wait before the leave is recorded, up to a minute, such as `5s`. A ping in the
	// meantime makes it void.
	After string `json:"after" validate:"optional"`
}

// Item is one ping or leave of many.
type Item struct {
	User  string `json:"user" minLength:"1" maxLength:"256"`
	Event `json:",inline"`
} // @name BatchItem

// DecodeItem decodes an item.
func DecodeItem(d *jsontext.Decoder, i *Item) error { return DecodeObject(d, i, decodeItemField) }

func decodeItemField(d *jsontext.Decoder, i *Item, name string) error {
	switch name {
	case "user":
		return DecodeString(d, &i.User)
	case "at":
		return DecodeTime(d, &i.At)
	case "device":
		return DecodeOptional(d, &i.Device, DecodeDevice)
	case "activity":
		return DecodeString(d, &i.Activity)
	case "after":
		return DecodeString(d, &i.After)
	default:
		return UnknownField[Item](d)
	}
}

// DecodeTime keeps any value that is not an object or an array, for [Event.Time].
func DecodeTime(d *jsontext.Decoder, v *jsontext.Value) error {
	if kind := d.PeekKind(); kind == '{' || kind == '[' {
		return errTimeType()
	}
	raw, err := d.ReadValue()
	*v = raw.Clone()
	return err
}

// MaxAhead is how far a ping or a leave may be ahead of the server's clock, in milliseconds.
const MaxAhead = 5000

// Time returns the time of the event, which may be ahead of the server's clock by up to [MaxAhead]. An omitted time is
// now.
func (e Event) Time(now lastseen.Instant) (lastseen.Instant, *problem.Error) {
	if len(e.At) == 0 {
		return now, nil
	}
	text := string(e.At)
	switch e.At.Kind() {
	case '0':
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, e.At) // which is valid JSON
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
	case at > now+MaxAhead:
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
	Active = "active"
	Idle   = "idle"
)

// IdleSince returns since when the device of the event at a time is idle: 0 if it is active, as without an activity.
func (e Event) IdleSince(at lastseen.Instant) (lastseen.Instant, *problem.Error) {
	switch e.Activity {
	case "", Active:
		return 0, nil
	case Idle:
		return at, nil
	default:
		return 0, problem.Errorf(problem.InvalidDevice, "Invalid activity %.40q: use active or idle.", e.Activity)
	}
}

// Wait returns how long the leave has to wait, for up to a time; 0 if that is omitted.
func (e Event) Wait(longest time.Duration) (time.Duration, *problem.Error) {
	if e.After == "" || e.After == "0" || e.After == "0s" {
		return 0, nil
	}
	after, err := lastseen.ParseDuration(e.After)
	switch {
	case err != nil:
		return 0, problem.Errorf(problem.InvalidDuration, "after: %v.", err)
	case after > longest:
		return 0, problem.Errorf(problem.InvalidDuration, "Invalid after %.40q: use at most %ds.", e.After,
			longest/time.Second)
	}
	return after, nil
}
