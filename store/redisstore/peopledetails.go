package redisstore

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file reads what others see of users besides their states, and what users say: see docs/decisions/people.md.

// Describe implements [store.Store].
func (s *Store) Describe(
	ctx context.Context, name string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	b := &store.Batch[string]{Namespace: name, Items: users}
	s.LookupBatches(ctx, []*store.Batch[string]{b})
	var details map[string]store.Details
	for _, d := range b.Details {
		details = addDetails(details, users[d.At], d.Details)
	}
	return b.States, details, b.Err
}

// ReadDetails implements [store.Store].
func (s *Store) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(namespace)}
	if s.verify(ctx, []*candidate{c}); c.err != nil || !c.bits.details.set || len(records) == 0 {
		return nil, c.err
	}
	var all map[string]store.Details
	user := func(i int) *string { return &records[i].User }
	found := func(i int, d store.Details) { all = addDetails(all, records[i].User, d) }
	pipe := s.reader(ctx).Pipeline()
	var queries []*detailsQuery
	for _, chunk := range c.split(len(records), maxChunk, func(i int) string { return records[i].User }) {
		queries = append(queries, s.queryDetails(ctx, pipe, c.namespace, chunk, user, found))
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	if err := cmp.Or(s.readDetails(ctx, queries)...); err != nil {
		return nil, err
	}
	return all, nil
}

// addDetails adds details to a map, which is nil while it is empty.
func addDetails(all map[string]store.Details, user string, d store.Details) map[string]store.Details {
	if all == nil {
		all = map[string]store.Details{}
	}
	all[user] = d
	return all
}

// warnOfDetails logs a user whose details cannot be read, because another program wrote them.
func (s *Store) warnOfDetails(ns namespace, user string) {
	s.warnOnce(ns, "details", "what a user says cannot be read: it counts as nothing", "user", user)
}

// parsePrivate reads what an invisible user says: see say.lua.
func parsePrivate(text string) (said lastseen.Said, ok bool) {
	end, note, _ := strings.Cut(text, " ")
	until, err := strconv.ParseInt(end, 10, 64)
	said = lastseen.Said{Availability: lastseen.Invisible, Note: note, Until: lastseen.Instant(until)}
	if err != nil || !validEnd(said.Until) || lastseen.CheckNote(note) != nil {
		return lastseen.Said{}, false
	}
	return said, true
}

// parseDetails reads the details of a user: see details.lua.
func parseDetails(text string) (d store.Details, ok bool) {
	times, said, _ := strings.Cut(text, " ")
	availability, said, _ := strings.Cut(said, " ")
	end, note, complete := strings.Cut(said, " ")
	if !complete {
		return d, false
	}
	since, inCall, isInCall := strings.Cut(times, "/")
	if !isInCall {
		inCall = "0"
	}
	idle, noIdle := strconv.ParseInt(since, 10, 64)
	call, noCall := strconv.ParseInt(inCall, 10, 64)
	until, noUntil := strconv.ParseInt(end, 10, 64)
	d = store.Details{
		Said:      lastseen.Said{Note: note, Until: lastseen.Instant(until)},
		IdleSince: lastseen.Instant(idle), InCallUntil: lastseen.Instant(call),
	}
	switch a := lastseen.Availability(availability); a {
	case lastseen.Away, lastseen.Busy:
		d.Said.Availability = a
	case "-":
	default:
		return store.Details{}, false
	}
	valid := validEnd(d.Said.Until) && validEnd(d.IdleSince) && validEnd(d.InCallUntil)
	if errors.Join(noIdle, noCall, noUntil) != nil || !valid || lastseen.CheckNote(d.Said.Note) != nil {
		return store.Details{}, false
	}
	return d, true
}

// validEnd reports whether a time is one that we write, or 0.
func validEnd(at lastseen.Instant) bool { return at >= 0 && at <= lastseen.MaxInstant }
