package api

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
)

// callResponse is a call as its parties and API keys see it, in responses and in frames.
type callResponse struct {
	// The ID of the call.
	ID string `json:"id" minLength:"1" maxLength:"64"`
	// The user who calls.
	From string `json:"from" minLength:"1" maxLength:"256"`
	// The user who is called.
	To string `json:"to" minLength:"1" maxLength:"256"`
	// ringing and active: the call goes on. ended: a party ended it. rejected: by the callee. cancelled: by the caller,
	// before the callee accepted. missed: the callee did not accept in time. lost: a party was no longer heard.
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
	CreatedAt timestamp `json:"created_at" swaggertype:"string" format:"date-time"`
	// When the callee accepted. Null if the callee has not.
	AcceptedAt timestamp `json:"accepted_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// When the call was over in any way. Null while it goes on.
	EndedAt timestamp `json:"ended_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// While the call rings: when it is missed. While it is active: when it is lost, unless both parties are heard
	// before. Null once it is over.
	ExpiresAt timestamp `json:"expires_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Any JSON of the app's, such as an offer. Null for none, once the call is over, and in responses to API keys
	// without the scope read.
	App callApp `json:"app" swaggertype:"object" extensions:"x-nullable"`
} // @name Call

// callActor is a party of a call who did something.
type callActor struct {
	User string `json:"user" minLength:"1" maxLength:"256"`
	// The device of the action. Null if it is not known, and in responses to API keys without the scope read.
	Device *string `json:"device" extensions:"x-nullable"`
} // @name CallActor

// callApp is a JSON value that clients store with a call; empty for none.
type callApp string

// MarshalJSONTo writes the value, or null for none; see [json.MarshalerTo].
func (a callApp) MarshalJSONTo(e *jsontext.Encoder) error {
	if value := jsontext.Value(a); value.IsValid() {
		return e.WriteValue(value)
	}
	return e.WriteToken(jsontext.Null)
}

// showCall returns what a response shows of a call.
func showCall(c lastseen.Call) callResponse {
	r := callResponse{
		ID: c.ID, From: c.From, To: c.To, State: c.State,
		FromDevice: optional(c.FromDevice), ToDevice: optional(c.ToDevice),
		CreatedAt: timestamp(c.Created), AcceptedAt: timestamp(c.Accepted), EndedAt: timestamp(c.Over),
		ExpiresAt: timestamp(c.Expires), App: callApp(c.App),
	}
	if c.By != "" {
		r.By = &callActor{c.By, optional(c.ByDevice)}
	}
	return r
}

// showCallTo returns what the response to a request that writes shows of a call: a caller who cannot read calls is not
// shown what the apps of the parties stored with it, nor the devices.
func showCallTo(caller *auth.Caller, namespace string, c lastseen.Call) callResponse {
	if caller.IsBlind(namespace) {
		c.App, c.FromDevice, c.ToDevice, c.ByDevice = "", "", "", ""
	}
	return showCall(c)
}

// optional returns a string in a response; nil, which is null, for an empty one.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// appendCall appends a call as JSON.
func appendCall(b []byte, c lastseen.Call) []byte {
	encoded, _ := json.Marshal(showCall(c)) // which has only names, times and JSON that was checked
	return append(b, encoded...)
}
