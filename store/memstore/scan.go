package memstore

import (
	"context"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// maxScanSlots bounds the slots that one call walks, and so the time that it holds the lock: most names in them may
// have been removed.
const maxScanSlots = 10_000

// ScanUsers implements [store.Store]. It walks the slots of names: a user keeps theirs until they are removed.
func (s *Store) ScanUsers(
	ctx context.Context, name string, after store.Position, limit int,
) (users []string, next store.Position, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		// The begin of the scan stands for a position that is not valid, such as one from before a restart, since which
		// the names are in other slots.
		from, _ := n.users.scans.number(string(after))
		users, next = n.users.scan(packed.Ref(from), min(max(limit, 1), store.MaxWatched))
	})
	return users, next, err
}

// scan returns up to limit users from a slot on, and the position after them; "" if no more slots follow.
func (u *users) scan(from packed.Ref, limit int) (found []string, next store.Position) {
	walked := 0
	for chunk := int(from >> 32); chunk < u.names.Chunks(); chunk++ {
		for _, slot := range u.names.Slots(chunk) {
			switch {
			case slot < from:
				continue
			case len(found) == limit || walked == maxScanSlots:
				return found, store.Position(u.scans.position(uint64(slot)))
			}
			walked++
			name := string(u.names.At(slot))
			if e, known := u.get(name); known && e.name == slot {
				found = append(found, name)
			}
		}
	}
	return found, ""
}
