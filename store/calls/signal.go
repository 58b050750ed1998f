package calls

import (
	"encoding/json"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// signalKind is the kind of signals that a call has changed.
const signalKind = "call"

// maxSignalApp is the largest App that a signal carries, in bytes.
const maxSignalApp = 1 << 10

// Change says that a call has changed for some of its parties. It is what a signal carries.
type Change struct {
	ID string `json:"id"`
	// Users are the parties, two at most. Receivers let them learn of it in this order: the caller comes first.
	Users []string `json:"users"`
	// Call is the call as it was then; nil if it has to be read. Servers of other versions know it by the names of its
	// fields.
	Call *lastseen.Call `json:"call,omitempty"`
}

// signal returns the signal of a change. It leaves a call out whose App is large.
func (c Change) signal(namespace string) store.Signal {
	if c.Call != nil && len(c.Call.App) > maxSignalApp {
		c.Call = nil
	}
	data, _ := json.Marshal(c) // texts and numbers can always be encoded
	return store.Signal{Kind: signalKind, Namespace: namespace, Data: data}
}

// Signal returns the signal that a call has to be read for some of its parties.
func Signal(namespace, id string, users ...string) store.Signal {
	return Change{ID: id, Users: users}.signal(namespace)
}

// OfSignal returns the change that a signal is about; the zero value if it is about something else, or cannot be read.
func OfSignal(s store.Signal) (c Change) {
	if s.Kind != signalKind || json.Unmarshal(s.Data, &c) != nil || len(c.Users) > 2 {
		return Change{}
	}
	if c.Call != nil && (c.Call.ID != c.ID || len(c.Call.App) > maxSignalApp) {
		c.Call = nil
	}
	return c
}
