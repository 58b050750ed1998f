package store

import (
	"context"
	"time"
)

// Leases let one of several processes do some work alone, and note how far it is for the next one. Names are valid
// names of namespaces.
type Leases interface {
	// Lease asks that only this process, of all on this store, does the named work for the given time. Its holder
	// calls it again to extend it. Lease returns false if another process holds it.
	Lease(ctx context.Context, name string, ttl time.Duration) (bool, error)

	// Note returns what a holder of the lease noted last under a key; the zero Note if there is nothing.
	Note(ctx context.Context, name, key string) (Note, error)

	// Notes returns the keys under which there are notes, in no order.
	Notes(ctx context.Context, name string) (keys []string, err error)

	// SetNote replaces the note under a key, if this process holds the lease and the note still has the version old.
	// Otherwise it changes nothing and returns false. So no holder moves back what a later one noted. The zero Note
	// deletes.
	//
	// All notes of a lease are kept for at least NotesKept after the last call. A store in the memory of a process
	// loses them when that ends.
	SetNote(ctx context.Context, name, key, old string, n Note) (bool, error)
}

// NotesKept is how long notes are kept, and how long after that they are deleted at the latest.
const NotesKept = time.Hour

// Note is something that the holder of a lease noted.
type Note struct {
	Version string // is another one for each note; without spaces; "" if there is none
	Text    []byte // kept and read as a whole: up to a megabyte
}
