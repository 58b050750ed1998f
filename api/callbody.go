package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/session"
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
	App request.App `json:"app" swaggertype:"object" extensions:"x-nullable" validate:"optional"`
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
	App request.App `json:"app" swaggertype:"object" extensions:"x-nullable" validate:"optional"`
} // @name CallAnswer

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

// showCallTo returns what the response to a request that writes shows of a call: a caller who cannot read calls is not
// shown what the apps of the parties stored with it, nor the devices.
func showCallTo(caller *auth.Caller, namespace string, c lastseen.Call) session.Call {
	if caller.IsBlind(namespace) {
		c.App, c.FromDevice, c.ToDevice, c.ByDevice = "", "", "", ""
	}
	return session.ShowCall(c)
}
