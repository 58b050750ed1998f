package memstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/store"
)

// maxScanSlots bounds the slots that one call walks, and so the time that it holds the lock: most names in them may
// have been removed.
const maxScanSlots = 10_000

// ScanUsers implements [store.Store]. It walks the slots of names: a user keeps theirs until they are removed.
func (s *Store) ScanUsers(
	ctx context.Context, name string, after store.Position, limit int,
) (users []string, next store.Position, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		at := n.users.parseScanPosition(after)
		users, next = n.users.scan(at, min(max(limit, 1), store.MaxWatched))
	})
	return users, next, err
}

// scanPosition is where a scan continues: at a slot of a chunk of names.
type scanPosition struct{ chunk, slot int }

// scan returns up to limit users from a position on, and the position after them; "" if no more slots follow.
func (u *users) scan(at scanPosition, limit int) (found []string, next store.Position) {
	for walked := 0; at.chunk < u.names.Chunks(); at = (scanPosition{at.chunk + 1, 0}) {
		for slots := u.names.Slots(at.chunk); at.slot < len(slots); at.slot++ {
			if len(found) == limit || walked == maxScanSlots {
				return found, u.scanText(at)
			}
			walked++
			name := string(u.names.At(slots[at.slot]))
			if e, known := u.get(name); known && e.name == slots[at.slot] {
				found = append(found, name)
			}
		}
	}
	return found, ""
}

func (u *users) scanText(p scanPosition) store.Position {
	return store.Position(u.scans + strconv.Itoa(p.chunk) + "-" + strconv.Itoa(p.slot))
}

// parseScanPosition is the reverse of scanText. Positions are untrusted: the begin of the scan stands for one that is
// not valid, such as one from before a restart, since which the names are in other slots.
func (u *users) parseScanPosition(text store.Position) scanPosition {
	numbers, ours := strings.CutPrefix(string(text), u.scans)
	first, second, _ := strings.Cut(numbers, "-")
	chunk, err1 := strconv.ParseUint(first, 10, 31)
	slot, err2 := strconv.ParseUint(second, 10, 31)
	if !ours || err1 != nil || err2 != nil {
		return scanPosition{}
	}
	return scanPosition{int(chunk), int(slot)}
}
