package testserver

import (
	"errors"
	"fmt"
)

// HookEvent is what receivers of a webhook read of an event.
type HookEvent struct {
	Type string
	Data struct {
		Namespace string
		Users     []struct{ User, Status, Previous string }
		More      bool
	}
}

// Hooked is what a receiver of a webhook knows of a namespace, by the rules of docs/webhooks.md. The zero value knows
// nothing.
type Hooked struct {
	Statuses map[string]string // of users who are not grey; nil before the first snapshot
	Resets   int

	snapshot map[string]string // as far as it came; nil if none goes on
}

// Complete reports whether the receiver knows everyone: a snapshot was delivered, and no other one goes on.
func (h *Hooked) Complete() bool { return h.Statuses != nil && h.snapshot == nil }

// StatusOf returns the status of a user; grey if the receiver knows no other.
func (h *Hooked) StatusOf(user string) string { return statusIn(h.Statuses, user) }

func statusIn(statuses map[string]string, user string) string {
	if status := statuses[user]; status != "" {
		return status
	}
	return "grey"
}

// Take applies an event that is no repetition. It returns an error if something is missing before it: there is no
// snapshot without a reset, no change during a snapshot, and what a user was before is what the receiver knows.
func (h *Hooked) Take(e HookEvent) (err error) {
	users := h.Statuses
	switch e.Type {
	case "presence.reset":
		h.Resets++
		h.snapshot = map[string]string{}
		return nil
	case "presence.snapshot":
		if h.snapshot == nil {
			if h.Statuses != nil {
				err = errors.New("a snapshot without a reset")
			}
			h.snapshot = map[string]string{}
		}
		users = h.snapshot
	default:
		if !h.Complete() {
			return fmt.Errorf("%s before the end of the snapshot", e.Type)
		}
	}
	for _, u := range e.Data.Users {
		before := statusIn(users, u.User)
		if e.Type == "presence.changed" && u.Previous != "" && u.Previous != before {
			err = fmt.Errorf("%s is known as %s, but was %s, and is %s", u.User, before, u.Previous, u.Status)
		}
		users[u.User] = u.Status
		if u.Status == "grey" {
			delete(users, u.User)
		}
	}
	if e.Type == "presence.snapshot" && !e.Data.More {
		h.Statuses, h.snapshot = h.snapshot, nil
	}
	return err
}
