package memstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/store"
)

// maxScanChunks bounds the chunks of names that one call walks, and so the time that it holds the lock: most names in
// them may have been removed.
const maxScanChunks = 8

// ScanUsers implements [store.Store]. It walks the slots of names: a user keeps theirs until they are removed.
func (s *Store) ScanUsers(
	ctx context.Context, namespace string, after store.Place, limit int,
) (users []string, next store.Place, err error) {
	chunk, slot := parseScanPlace(after)
	err = s.read(ctx, func(x *index) {
		if n, ok := x.namespaces.Get(namespace); ok {
			users, next = n.users.scan(chunk, slot, min(max(limit, 1), store.MaxWatched))
		}
	})
	return users, next, err
}

// scan returns up to limit users from a slot of a chunk on, and the place of the next slot; "" after the last one.
func (u *users) scan(chunk, slot, limit int) (found []string, next store.Place) {
	for last := chunk + maxScanChunks; ; chunk, slot = chunk+1, 0 {
		chunks, places := u.names.Slots(chunk)
		if chunk >= chunks {
			return found, ""
		}
		if chunk == last {
			return found, scanPlace(chunk, slot)
		}
		for ; slot < len(places); slot++ {
			if len(found) == limit {
				return found, scanPlace(chunk, slot)
			}
			name := string(u.names.At(places[slot]))
			if e, known := u.get(name); known && e.name == places[slot] {
				found = append(found, name)
			}
		}
	}
}

func scanPlace(chunk, slot int) store.Place {
	return store.Place(strconv.Itoa(chunk) + "/" + strconv.Itoa(slot))
}

// parseScanPlace is the reverse of scanPlace. Places are untrusted: the begin of the scan stands for one that is not
// valid.
func parseScanPlace(text store.Place) (chunk, slot int) {
	first, second, _ := strings.Cut(string(text), "/")
	chunk, err1 := strconv.Atoi(first)
	slot, err2 := strconv.Atoi(second)
	if err1 != nil || err2 != nil || chunk < 0 || slot < 0 {
		return 0, 0
	}
	return chunk, slot
}
