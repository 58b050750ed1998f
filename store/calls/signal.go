package calls

import (
	"encoding/json"

	"github.com/lastseen/lastseen/store"
)

// signalKind is the kind of signals that a call has changed.
const signalKind = "call"

// changed is what such a signal carries.
type changed struct {
	ID    string   `json:"id"`
	Users []string `json:"users"`
}

// Signal returns the signal that a call has changed for some of its parties. Receivers let them learn of it in this
// order: the caller comes first.
func Signal(namespace, id string, users ...string) store.Signal {
	data, _ := json.Marshal(changed{id, users}) // texts can always be encoded
	return store.Signal{Kind: signalKind, Namespace: namespace, Data: data}
}

// OfSignal returns the call that has changed, and the parties that a signal is for, two at most; "" and none if a
// signal is about something else, or cannot be read.
func OfSignal(s store.Signal) (id string, users []string) {
	var c changed
	if s.Kind != signalKind || json.Unmarshal(s.Data, &c) != nil || len(c.Users) > 2 {
		return "", nil
	}
	return c.ID, c.Users
}
