package redisstore

import (
	"context"
	"maps"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Lookup implements [store.Store].
func (r *replicaReads) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	states, _, err := r.Describe(ctx, namespace, users)
	return states, err
}

// Describe implements [store.Store]. The primary answers for users whom this process wrote just now.
func (r *replicaReads) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	recent, settled, since := r.divide(users)
	if len(recent) == len(users) && len(users) > 0 {
		r.replicas.counts[resultOwn].Add(1)
		return r.Store.Describe(ctx, namespace, users)
	}
	d := described{users: users, states: make([]lastseen.State, len(users))}
	if !r.try(ctx, "lookup", namespace, since, d.read(r.own, namespace, settled)) {
		return r.Store.Describe(ctx, namespace, users)
	}
	if len(recent) > 0 {
		if err := d.read(r.Store, namespace, recent)(ctx); err != nil {
			return nil, nil, err
		}
	}
	return d.states, d.details, nil
}

// divide returns the places of users whom this process wrote after the replica's last known heartbeat, the places of
// the others, and the moment since which the replica has everything about the others.
func (r *replicaReads) divide(users []string) (recent, settled []int, since store.Moment) {
	seen := r.replica.seen.Load().number
	since = max(r.since, r.replicas.marks.get(r.namespace, wholeMark))
	for i, user := range users {
		at := r.replicas.marks.get(r.namespace, user)
		if at >= seen {
			recent = append(recent, i)
			continue
		}
		settled = append(settled, i)
		since = max(since, at)
	}
	return recent, settled, since
}

// described is what is known of users, in the order asked.
type described struct {
	users   []string
	states  []lastseen.State
	details map[string]store.Details
}

// read returns a function that reads the users at some places from a store.
func (d *described) read(from store.Store, namespace string, places []int) func(context.Context) error {
	return func(ctx context.Context) error {
		asked := make([]string, len(places))
		for i, at := range places {
			asked[i] = d.users[at]
		}
		states, details, err := from.Describe(ctx, namespace, asked)
		if err != nil {
			return err
		}
		for i, at := range places {
			d.states[at] = states[i]
		}
		if d.details == nil {
			d.details = details
		} else {
			maps.Copy(d.details, details)
		}
		return nil
	}
}
