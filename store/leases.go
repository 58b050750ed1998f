package store

import (
	"context"
	"time"
)

// Leaser lets one of several processes do some work alone.
type Leaser interface {
	// Lease asks that only this process, of all on this store, does the named work for the given time. Its holder
	// calls it again to extend it. Lease returns false if another process holds it. The name is a valid name of a
	// namespace.
	Lease(ctx context.Context, name string, ttl time.Duration) (bool, error)
}

// Release gives up a lease, by requesting it for the shortest time possible. If that fails within a second, the lease
// ends by itself.
func Release(ctx context.Context, l Leaser, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.Lease(ctx, name, time.Millisecond)
}

// Notes keep what processes note for each other: how far work is, so that the next one goes on from there. Each name,
// a valid name of a namespace, has notes of its own.
type Notes interface {
	// Note returns what was noted last under a key; the zero Note if there is nothing.
	Note(ctx context.Context, name, key string) (Note, error)

	// Notes returns the keys under which there are notes, in no order.
	Notes(ctx context.Context, name string) (keys []string, err error)

	// SetNote replaces the note under a key if that has the version old, and reports whether it did. So no process
	// moves back what another one noted meanwhile. The zero Note deletes.
	//
	// The notes of a name are kept for NotesKept after the last call about one of them, or for longer. A store in the
	// memory of a process loses them when that ends.
	SetNote(ctx context.Context, name, key, old string, n Note) (bool, error)
}

// NotesKept is how long notes are kept at least.
const NotesKept = time.Hour

// Note is something that was noted.
type Note struct {
	Version string // is another one for each note; without spaces; "" if there is none
	Text    []byte // kept and read as a whole: up to a megabyte

	// Whether the store restarted or failed over after the note was set, so that later ones may be lost. The note then
	// has another version: SetNote replaces none whose caller does not know that. SetNote ignores it.
	Restored bool
}
