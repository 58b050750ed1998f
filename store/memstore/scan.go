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
	ctx context.Context, name string, after store.Place, limit int,
) (users []string, next store.Place, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		at := n.users.parseScanPlace(after)
		users, next = n.users.scan(at, min(max(limit, 1), store.MaxWatched))
	})
	return users, next, err
}

// scanPlace is where a scan continues: at a slot of a chunk of names.
type scanPlace struct{ chunk, slot int }

// scan returns up to limit users from a place on, and the place after them; "" if no more slots follow.
func (u *users) scan(at scanPlace, limit int) (found []string, next store.Place) {
	for walked := 0; at.chunk < u.names.Chunks(); at = (scanPlace{at.chunk + 1, 0}) {
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

func (u *users) scanText(p scanPlace) store.Place {
	return store.Place(u.scans + strconv.Itoa(p.chunk) + "-" + strconv.Itoa(p.slot))
}

// parseScanPlace is the reverse of scanText. Places are untrusted: the begin of the scan stands for one that is not
// valid, such as one from before a restart, since which the names are in other slots.
func (u *users) parseScanPlace(text store.Place) scanPlace {
	numbers, ours := strings.CutPrefix(string(text), u.scans)
	first, second, _ := strings.Cut(numbers, "-")
	chunk, err1 := strconv.ParseUint(first, 10, 31)
	slot, err2 := strconv.ParseUint(second, 10, 31)
	if !ours || err1 != nil || err2 != nil {
		return scanPlace{}
	}
	return scanPlace{int(chunk), int(slot)}
}
