package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

const (
	maxCallBody = 32 << 10 // bytes: of two users, a device and app, with spaces and escapes
	ifPresent   = "present"
)

// The forms of bodies about a call. What takes memory are the names in the objects of app, which are checked for
// duplicates.
var (
	newCallForm = request.Form{Max: maxCallBody, Items: maxCallBody, Sign: ':', Each: 96}
	actionForm  = request.Form{Max: maxCallBody, Optional: true, Items: maxCallBody, Sign: ':', Each: 96}
)

// newCallBody is the JSON of a call that is to begin.
type newCallBody struct {
	// The user who calls. It can be omitted with a user's token.
	From string `json:"from" maxLength:"256" validate:"optional"`
	// The user to call.
	To string `json:"to" minLength:"1" maxLength:"256"`
	// The ID of the device on which the user calls.
	Device string `json:"device" maxLength:"64" validate:"optional"`
	// Any JSON of your app, of at most 16 KiB without spaces, such as an offer. Both parties see it until the call is
	// over.
	App callApp `json:"app" swaggertype:"object" extensions:"x-nullable" validate:"optional"`
	// With `present`, the call rings only if the callee is green or yellow, as the caller sees them. API keys need the
	// scope `read` for that.
	If string `json:"if" enums:"present" validate:"optional"`
} // @name NewCall

// callActionBody is the JSON of an action of a party.
type callActionBody struct {
	// The party. It can be omitted with a user's token.
	User string `json:"user" maxLength:"256" validate:"optional"`
	// The ID of the device on which the party acts.
	Device string `json:"device" maxLength:"64" validate:"optional"`
} // @name CallAction

// callEndBody is the JSON of the end of a call.
type callEndBody struct {
	callActionBody `json:",inline"`
	// The JWT of the party, for a page that closes and cannot set headers. Ignored if the request has the header
	// Authorization, or if the server does not authenticate.
	Token string `json:"token" validate:"optional"`
} // @name CallEnd

// callAnswerBody is the JSON of an action that can replace what the app has stored with the call.
type callAnswerBody struct {
	callActionBody `json:",inline"`
	// Any JSON of your app, of at most 16 KiB without spaces, such as an answer. It replaces that of the call;
	// omitted or null leaves it as it is.
	App callApp `json:"app" swaggertype:"object" extensions:"x-nullable" validate:"optional"`
} // @name CallAnswer

// decodeCallApp decodes any JSON value that is small enough to keep, without spaces; null as none.
func decodeCallApp(d *jsontext.Decoder, app *callApp) error {
	value, err := d.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return err
	}
	value = value.Clone()
	if err := value.Compact(); err != nil {
		return err
	}
	if len(value) > store.MaxCallApp {
		return problem.Errorf(problem.InvalidCall,
			"app has %d bytes: at most %d are allowed.", len(value), store.MaxCallApp)
	}
	if err := request.CheckNumbers("app", value, problem.InvalidCall); err != nil {
		return err
	}
	*app = callApp(value)
	return nil
}

// newCall validates a body and the key of a request, and returns the call that is to begin.
func (b newCallBody) newCall(caller *auth.Caller, key string) (n store.NewCall, err error) {
	from, err := partyOf(caller, auth.Ping, "from", b.From)
	if err != nil {
		return n, err
	}
	switch err := lastseen.CheckUser(b.To); {
	case err != nil:
		return n, problem.Errorf(problem.InvalidUser, "to: %v.", err)
	case from == b.To:
		return n, problem.New(problem.InvalidCall, "Users cannot call themselves: from and to are the same.")
	case b.If != "" && b.If != ifPresent:
		return n, problem.Errorf(problem.InvalidCall, "Invalid if %.40q: use present, or omit it.", b.If)
	}
	if err := checkCallDevice(b.Device); err != nil {
		return n, err
	}
	return store.NewCall{
		From: from, To: b.To, FromDevice: b.Device, App: string(b.App), Key: key, Digest: b.digest(),
	}, nil
}

// digest returns what distinguishes requests with the same key of a caller.
func (b newCallBody) digest() string {
	// Neither users nor devices contain a NUL.
	sum := sha256.Sum256([]byte(strings.Join([]string{b.To, b.Device, b.If, string(b.App)}, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// act validates a body, and returns what the party does with a call.
func (b callActionBody) act(caller *auth.Caller, id string, action lastseen.CallAction) (a store.CallAct, err error) {
	user, err := partyOf(caller, auth.Ping, "user", b.User)
	if err != nil {
		return a, err
	}
	return store.CallAct{ID: id, User: user, Device: b.Device, Action: action}, checkCallDevice(b.Device)
}

// act is that of a body without data of the app, and with them.
func (b callAnswerBody) act(caller *auth.Caller, id string, action lastseen.CallAction) (a store.CallAct, err error) {
	a, err = b.callActionBody.act(caller, id, action)
	a.App = string(b.App)
	return a, err
}

// partyOf returns the user for whom a caller with a scope acts: the one that a field names, or that of the token.
func partyOf(caller *auth.Caller, scope auth.Scope, field, named string) (string, error) {
	if named == "" && caller != nil && caller.Kind == auth.ByToken {
		return caller.Name, nil
	}
	if named == "" {
		return "", problem.Errorf(problem.InvalidUser,
			"%s is missing: only requests with a user's token can omit it.", field)
	}
	if !caller.CanPing(named) {
		return "", guard.ErrForbidden(scope, "A token speaks for its own user only.")
	}
	if err := lastseen.CheckUser(named); err != nil {
		return "", problem.Errorf(problem.InvalidUser, "%s: %v.", field, err)
	}
	return named, nil
}

// checkCallDevice returns an error unless a device is valid, or omitted.
func checkCallDevice(device string) error {
	if device == "" {
		return nil
	}
	if err := lastseen.CheckDevice(device); err != nil {
		return problem.From(problem.InvalidDevice, err)
	}
	return nil
}

// callResponse is a call as its parties and API keys see it, in responses and in frames.
type callResponse struct {
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
		CreatedAt: request.Timestamp(c.Created), AcceptedAt: request.Timestamp(c.Accepted),
		EndedAt: request.Timestamp(c.Over), ExpiresAt: request.Timestamp(c.Expires), App: callApp(c.App),
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
