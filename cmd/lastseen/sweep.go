package main

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	sweepPage = 100                    // namespaces read at once
	pagePause = time.Millisecond       // between pages, so that others come in between
	trimPause = 100 * time.Millisecond // between calls that delete, so that others come in between
)

// room is a namespace with something to do.
type room struct {
	name  string
	empty bool // nobody was in it when it was listed, and it is not configured
}

// rooms returns the namespaces that have a retention, or are empty and not configured.
func (j *janitor) rooms(ctx context.Context) (rooms []room, err error) {
	for after := ""; ; {
		page, err := j.store.Namespaces(ctx, after, sweepPage)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			empty := n.Newest == 0
			if empty && !j.configured(n.Name) || !empty && j.retention(n.Name) > 0 {
				rooms = append(rooms, room{n.Name, empty})
			}
		}
		if len(page) < sweepPage {
			return rooms, nil
		}
		after = page[len(page)-1].Name
		j.pause(ctx, pagePause)
	}
}

// sweep removes a namespace that is empty. From any other one it deletes users in small calls until there is nobody
// left to delete, or somebody else has the lease.
func (j *janitor) sweep(ctx context.Context, r room) error {
	if r.empty {
		return j.remove(ctx, r.name)
	}
	deleted := 0
	defer func() {
		if deleted > 0 {
			j.logger.Info("deleted users past their retention", "namespace", r.name, "users", deleted)
		}
	}()
	for ctx.Err() == nil && j.holds(ctx) {
		n, err := j.trim(ctx, r.name)
		deleted += n
		if err != nil || n < store.MaxTrim {
			return err
		}
		j.pause(ctx, trimPause)
	}
	return nil
}

// remove removes a namespace if it is still empty and not configured. One that this server cannot serve only looked
// empty.
func (j *janitor) remove(ctx context.Context, namespace string) error {
	if j.configured(namespace) {
		return nil
	}
	_, err := j.store.RemoveEmpty(ctx, namespace)
	if errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType) {
		return nil
	}
	return err
}

// trim deletes once, unless the store's clock has moved, and returns how many. It deletes everyone in a namespace only
// if every sweep for a while would have.
func (j *janitor) trim(ctx context.Context, namespace string) (int, error) {
	now, err := j.now(ctx)
	if err != nil || !j.steady() {
		return 0, err
	}
	keep := j.retention(namespace) // asked last, since it may have changed meanwhile
	if keep == 0 {
		return 0, nil
	}
	at := j.monotonic()
	all := j.full.due(namespace, at)
	result, err := j.store.Trim(ctx, namespace, store.TrimQuery{Age: keep, Now: now, All: all})
	if errors.Is(err, store.ErrClockMoved) {
		j.moved(err)
		return 0, nil
	}
	if err == nil {
		j.full.note(namespace, result.Held || all && result.Deleted == store.MaxTrim, at)
	}
	return result.Deleted, err
}
