package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lastseen/lastseen"
)

// The errors of a store. The cause is wrapped for the log.
var (
	// ErrUnavailable means that the store cannot be reached, is not ready, or did not respond in time.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull means that the store has no room left. Reads still work.
	ErrFull = errors.New("store full")
	// ErrOverloaded means that the store has more calls waiting than it accepts. Nothing was done.
	ErrOverloaded = errors.New("store overloaded")
	// ErrWrongType means that the namespace's key holds something other than presence.
	ErrWrongType = errors.New("key holds another type")
	// ErrMismatch means that the namespace is stored with settings other than this server's. Only a change of
	// settings helps.
	ErrMismatch = errors.New("namespace has other settings")
	// ErrNamespaceLimit means that the namespace does not exist and that the store holds as many as allowed.
	ErrNamespaceLimit = errors.New("too many namespaces")
	// ErrClockMoved means that the store's clock is not where the caller of Trim or TrimContacts expects it. Nothing
	// was deleted.
	ErrClockMoved = errors.New("the store's clock moved")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store closed")
)

// MayBeDone reports whether a write that returned an error, or nil, may have changed what is stored.
func MayBeDone(err error) bool {
	return err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// MismatchError is an [ErrMismatch] that names the settings to change.
type MismatchError struct {
	Namespace string
	Settings  []string // names of settings, as in redis-shards; none if no setting helps
	Detail    string   // what is stored and what this server expects
}

// Error describes the mismatch for the log.
func (e *MismatchError) Error() string {
	text := fmt.Sprintf("%v: namespace %q %s", ErrMismatch, e.Namespace, e.Detail)
	if len(e.Settings) > 0 {
		text += "; see " + strings.Join(e.Settings, ", ")
	}
	return text
}

// Is reports whether the target is [ErrMismatch].
func (*MismatchError) Is(target error) bool { return target == ErrMismatch }

// CheckClock returns [ErrClockMoved] if the time by the store's clock is not where the query expects it.
func (q TrimQuery) CheckClock(now lastseen.Instant) error {
	if now < q.Now.Add(-MaxClockDrift) || now > q.Now.Add(MaxClockDrift) {
		return fmt.Errorf("%w: it shows %s, and %s was expected", ErrClockMoved, now, q.Now)
	}
	return nil
}
