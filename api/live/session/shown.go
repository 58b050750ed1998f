package session

import (
	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/request"
)

// Call is a call as its parties and API keys see it, in responses and in frames.
type Call struct {
	// The ID of the call.
	ID string `json:"id" minLength:"1" maxLength:"64"`
	// The user who calls.
	From string `json:"from" minLength:"1" maxLength:"256"`
	// The user who is called.
	To string `json:"to" minLength:"1" maxLength:"256"`
	// ringing and active: the call continues. ended: a party ended it. rejected: by the callee. cancelled: by the
	// caller, before the callee accepted. missed: the callee did not accept in time. lost: nothing was received from a
	// party.
	State lastseen.CallState `json:"state"`
	// The device on which the caller called. Null if it is not known, and in responses to API keys without the scope
	// read.
	FromDevice *string `json:"from_device" extensions:"x-nullable"`
	// The device on which the callee accepted or rejected. Null if the callee has not, if it is not known, and in
	// responses to API keys without the scope read.
	ToDevice *string `json:"to_device" extensions:"x-nullable"`
	// The party whose action led to the state. Null if time did.
	By *callActor `json:"by" extensions:"x-nullable"`
	// When the caller called.
	CreatedAt request.Timestamp `json:"created_at" swaggertype:"string" format:"date-time"`
	// When the callee accepted. Null if the callee has not.
	AcceptedAt request.Timestamp `json:"accepted_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// When the call ended in any way. Null while it is ongoing.
	EndedAt request.Timestamp `json:"ended_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// While the call rings: when it is missed. While it is active: when it is lost, unless both parties are active
	// before. Null once it has ended.
	ExpiresAt request.Timestamp `json:"expires_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Any JSON of the app's, such as an offer. Null for none, once the call has ended, and in responses to API keys
	// without the scope read.
	App request.App `json:"app" swaggertype:"object" extensions:"x-nullable"`
} // @name Call

// callActor is a party of a call who did something.
type callActor struct {
	User string `json:"user" minLength:"1" maxLength:"256"`
	// The device of the action. Null if it is not known, and in responses to API keys without the scope read.
	Device *string `json:"device" extensions:"x-nullable"`
} // @name CallActor

// ShowCall returns what responses and frames show of a call.
func ShowCall(c lastseen.Call) Call {
	r := Call{
		ID: c.ID, From: c.From, To: c.To, State: c.State,
		FromDevice: request.Optional(c.FromDevice), ToDevice: request.Optional(c.ToDevice),
		CreatedAt: request.Timestamp(c.Created), AcceptedAt: request.Timestamp(c.Accepted),
		EndedAt: request.Timestamp(c.Over), ExpiresAt: request.Timestamp(c.Expires), App: request.App(c.App),
	}
	if c.By != "" {
		r.By = &callActor{c.By, request.Optional(c.ByDevice)}
	}
	return r
}

// Counts is the number of users with each status.
type Counts struct {
	// The time at which the statuses were evaluated.
	AsOf   request.Timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	Green  int64             `json:"green" format:"int64" minimum:"0"`
	Yellow int64             `json:"yellow" format:"int64" minimum:"0"`
	Grey   int64             `json:"grey" format:"int64" minimum:"0"`
	// The sum of green, yellow and grey.
	Total int64 `json:"total" format:"int64" minimum:"0"`
} // @name Counts

// ShowCounts returns what responses and frames show of the number of users with each status at a time.
func ShowCounts(n map[lastseen.Status]int64, asOf lastseen.Instant) Counts {
	green, yellow, grey := n[lastseen.Green], n[lastseen.Yellow], n[lastseen.Grey]
	return Counts{
		AsOf: request.Timestamp(asOf), Green: green, Yellow: yellow, Grey: grey, Total: green + yellow + grey,
	}
}

// appendShown appends a call or counts as JSON.
func appendShown(b []byte, shown any) []byte {
	encoded, _ := json.Marshal(shown) // which has only names, numbers, times and JSON that was checked
	return append(b, encoded...)
}
