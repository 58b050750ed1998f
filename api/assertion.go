package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// assertion is what a body says about one ping or leave, as it was sent.
type assertion struct {
	At     jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	Device *deviceBody    `json:"device" validate:"optional"`
	// Only for pings: whether the person uses the device. It requires a device. Default: active.
	Activity string `json:"activity" enums:"active,idle" validate:"optional"`
	// Only for leaves: how long to wait before the leave is recorded, up to a minute, such as `5s`. A ping in the
	// meantime makes it void.
	After string `json:"after" validate:"optional"`
}

// batch are valid pings or leaves in one namespace, by the way in which they are recorded.
type batch struct {
	plain   []store.Sighting // of no device
	devices []store.DeviceSighting
	later   []connections.Departure // leaves
}

func (b *batch) size() int { return len(b.plain) + len(b.devices) + len(b.later) }

// add validates what a body says about a user and adds it to the batch. Its namespace is that of the batch.
func (b *batch) add(e event, namespace, user string, a assertion, now lastseen.Instant) *apiError {
	if err := lastseen.CheckUser(user); err != nil {
		return newError(codeInvalidUser, sentence(err))
	}
	at, err := parseAt(a.At, now)
	if err != nil {
		return classify(err)
	}
	if a.Device == nil && a.Activity == "" && a.After == "" { // as in most
		b.plain = append(b.plain, store.Sighting{User: user, At: at})
		return nil
	}
	sighting, after, bad := a.details(e, at)
	if bad != nil {
		return bad
	}
	sighting.User, sighting.At, sighting.Gone = user, at, e == eventLeave
	switch {
	case after > 0:
		b.later = append(b.later, connections.Departure{Namespace: namespace, DeviceSighting: sighting, After: after})
	case sighting.ID == "":
		b.plain = append(b.plain, store.Sighting{User: user, At: at})
	default:
		b.devices = append(b.devices, sighting)
	}
	return nil
}

// details validates what an assertion at a time says about a device, and how long it has to wait.
func (a assertion) details(
	e event, at lastseen.Instant,
) (sighting store.DeviceSighting, after time.Duration, err *apiError) {
	if a.Device != nil {
		if sighting, err = a.Device.sighting(); err != nil {
			return sighting, 0, err
		}
	}
	switch {
	case e == eventPing && a.After != "":
		return sighting, 0, newError(codeUnknownField, `Unknown field "after": only leaves have it.`)
	case e == eventLeave && a.Activity != "":
		return sighting, 0, newError(codeUnknownField, `Unknown field "activity": only pings have it.`)
	case a.Activity != "" && a.Device == nil:
		return sighting, 0, newError(codeInvalidDevice, "activity is that of a device: send the device, too.")
	}
	if sighting.Idle, err = parseActivity(a.Activity, at); err != nil {
		return sighting, 0, err
	}
	after, err = parseAfter(a.After)
	return sighting, after, err
}

// parseAfter reads how long a leave has to wait; 0 if it is omitted.
func parseAfter(text string) (time.Duration, *apiError) {
	if text == "" || text == "0" || text == "0s" {
		return 0, nil
	}
	after, err := lastseen.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errorf(codeInvalidDuration, "after: %v.", err)
	case after > connections.MaxGrace:
		return 0, errorf(codeInvalidDuration, "Invalid after %.40q: use at most %s.", text, "60s")
	}
	return after, nil
}
