package feed

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// A snapshot of everyone comes in pages: a scan of the store finds some users, who are read as published, and the
// position of the watcher moves to where both fit. So pages and changes are one sequence, and a snapshot can take
// longer than entries are kept. A user who appears meanwhile is a change.

// scan is where the snapshot of a watcher of everyone is.
type scan struct {
	more       bool           // there are more pages
	position   store.Position // where the scan continues
	statuses   []lastseen.Status
	noSnapshot bool // the caller wants no snapshot
}

// scanMark begins the position of a scan, which follows those of the feed. Stores have no such position in a feed.
const scanPrefix = "scan:"

// splitScan returns the positions of a feed, and the position of a scan after them if it has more pages.
func splitScan(all []store.Position) (positions []store.Position, scan store.Position, more bool) {
	if last := len(all) - 1; last >= 0 {
		if position, more := strings.CutPrefix(string(all[last]), scanPrefix); more {
			return slices.Clone(all[:last]), store.Position(position), true
		}
	}
	return slices.Clone(all), "", false
}

// lists reports whether the next page is to have all users with some statuses, whom the store lists.
func (s *scan) lists() bool { return s.more && s.position == "" && len(s.statuses) > 0 }

// positions returns positions in the feed with that of the scan, if it has more pages.
func (s *scan) positions(positions []store.Position) []store.Position {
	if !s.more || positions == nil {
		return positions
	}
	return append(slices.Clone(positions), scanPrefix+s.position)
}

// page adds the next page of a snapshot to a batch, which has all changes before it; ok reports whether it has any. If
// the page cannot be read, the batch remains without it.
func (w *Watcher) page(ctx context.Context, b Batch, ok bool, limit int) (Batch, bool, error) {
	names, next, err := w.scanUsers(ctx, max(limit-len(b.Users), 1))
	var page Batch
	if err == nil {
		page, err = w.addPage(ctx, b, names)
	}
	switch {
	case err == nil:
		w.scan.position, w.scan.more = next, next != ""
		page.Page, page.More = true, w.scan.more
		return page, true, nil
	case ok:
		b.More = true
		return b, true, nil
	case errors.Is(err, errBehind):
		err = nil // to begin again
	}
	return Batch{}, false, err
}

// maxEmptyScans limits the steps of a scan for one page. A step in a shard without users finds none.
const maxEmptyScans = 16

// scanUsers returns the users of the next page. If only some statuses are asked for, and few users have them, these are
// all of them.
func (w *Watcher) scanUsers(ctx context.Context, limit int) (names []string, next store.Position, err error) {
	err = w.hub.withReadSlot(ctx, func() error {
		if w.scan.lists() {
			if names, err = w.listStatuses(ctx); err != nil || names != nil {
				return err
			}
		}
		next = w.scan.position
		for range maxEmptyScans {
			names, next, err = w.hub.o.Store.ScanUsers(ctx, w.f.namespace, next, limit)
			if err != nil || len(names) > 0 || next == "" {
				break
			}
		}
		return err
	})
	return names, next, err
}

// listStatuses returns all users with the statuses that are asked for; nil if they are too many.
func (w *Watcher) listStatuses(ctx context.Context) ([]string, error) {
	now, err := w.hub.o.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	w.f.mu.Lock()
	now = min(now, w.f.asOf) // who is published as green now, but has turned grey by the clock
	w.f.mu.Unlock()
	thresholds := w.hub.o.Settings(w.f.namespace).Thresholds
	ranges := thresholds.Ranges(w.scan.statuses, now, lastseen.MinInstant, lastseen.MaxInstant)
	for k := range ranges {
		if ranges[k].To >= now { // users who ping meanwhile stay in the list: their pings are no changes
			ranges[k].To = lastseen.MaxInstant
		}
	}
	q := store.ListQuery{Ranges: ranges, Order: store.Oldest, Limit: store.MaxWatched + 1}
	records, err := w.hub.o.Store.List(ctx, w.f.namespace, q)
	if err != nil || len(records) > store.MaxWatched {
		return nil, err
	}
	names := make([]string, len(records))
	for k, r := range records {
		names[k] = r.User
	}
	return names, nil
}

// addPage adds users as published to a batch of changes, and moves to the position that fits both. It returns errBehind
// if the watcher has to begin again.
func (w *Watcher) addPage(ctx context.Context, changes Batch, names []string) (Batch, error) {
	added := &Watcher{hub: w.hub, f: w.f, users: store.Without(names, nil), isPage: true}
	defer added.detachAll()
	var page, forOthers mergedBatch
	forOthers.add(changes)
	return w.drainBoth(ctx, added, &page, &forOthers, func(b *Batch) {
		b.Users = forOthers.updates(setOf(added.users))
		for _, u := range page.updates(nil) {
			_, changed := forOthers.users[u.User]
			if changed || len(w.scan.statuses) == 0 || slices.Contains(w.scan.statuses, u.Status) {
				b.Users = append(b.Users, u)
			}
		}
	})
}
