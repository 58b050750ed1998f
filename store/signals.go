package store

import (
	"context"
	"errors"
)

// ErrNoSignals means that signals reach only the process that sends them, as long as rights do not change.
var ErrNoSignals = errors.New("there are no signals between processes")

// Signals passes short messages between the processes on a store. It keeps nothing: a signal reaches the processes that
// listen at that moment, at most once. Signals of one process about one user arrive in the order in which they were
// sent. A receiver that must not miss anything also reads from the store from time to time.
type Signals interface {
	// Signal sends a signal to all processes on this store that listen, also to this one. After an error, other
	// processes may not have it. The error is ErrNoSignals if this process cannot send any.
	Signal(ctx context.Context, s Signal) error

	// Listen calls receive for each signal, one at a time, until ctx ends; then it returns. Receive must not block.
	// Listen calls it with the zero Signal first, once signals arrive, and again each time that signals may have been
	// lost before, as after a connection to Redis broke.
	Listen(ctx context.Context, receive func(Signal))
}

// Signal is a message about a user. The zero Signal says that signals may have been lost.
type Signal struct {
	Kind            string // what it is about: 1 to 16 lower-case letters
	Namespace, User string
	Data            []byte // at most MaxSignalData bytes
}

// MaxSignalData is the largest size of what a signal carries, in bytes.
const MaxSignalData = 16 << 10
