package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

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
	return b.States, b.Details, b.Err
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
	pipe := s.reader(ctx).Pipeline()
	chunks := c.split(len(records), maxChunk, func(i int) string { return records[i].User })
	cmds := make([]*redis.SliceCmd, len(chunks))
	for i, chunk := range chunks {
		cmds[i] = c.queryDetails(ctx, pipe, chunk, func(i int) *string { return &records[i].User })
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	var all map[string]store.Details
	name := func(i int) string { return records[i].User }
	for i, cmd := range cmds {
		if all, err = s.readDetails(all, c.namespace, chunks[i], cmd, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// queryDetails adds the command to a pipeline that reads the details of a chunk of users. They are passed as pointers:
// as strings, each would be copied into an interface.
func (n namespace) queryDetails(
	ctx context.Context, pipe redis.Pipeliner, c *chunk, user func(int) *string,
) *redis.SliceCmd {
	args := append(make([]any, 0, 2+len(c.index)), "hmget", n.details(c.key))
	for _, at := range c.index {
		args = append(args, user(at))
	}
	cmd := redis.NewSliceCmd(ctx, args...)
	_ = pipe.Process(ctx, cmd) // only queues it
	return cmd
}

// readDetails adds the details of a chunk of users to a map, which is nil while it is empty.
func (s *Store) readDetails(
	all map[string]store.Details, ns namespace, c *chunk, cmd *redis.SliceCmd, user func(int) string,
) (map[string]store.Details, error) {
	if err := cmd.Err(); err != nil {
		return nil, translate(err)
	}
	for i, value := range cmd.Val() {
		text, found := value.(string)
		if !found {
			continue
		}
		name := user(c.index[i])
		d, ok := parseDetails(text)
		if !ok {
			s.warnOfDetails(ns, name)
			continue
		}
		if all == nil {
			all = map[string]store.Details{}
		}
		all[name] = d
	}
	return all, nil
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
	values := strings.SplitN(text, " ", 4)
	if len(values) < 4 {
		return d, false
	}
	since, inCall, isInCall := strings.Cut(values[0], "/")
	if !isInCall {
		inCall = "0"
	}
	idle, noIdle := strconv.ParseInt(since, 10, 64)
	call, noCall := strconv.ParseInt(inCall, 10, 64)
	until, noUntil := strconv.ParseInt(values[2], 10, 64)
	d = store.Details{
		Said:      lastseen.Said{Note: values[3], Until: lastseen.Instant(until)},
		IdleSince: lastseen.Instant(idle), InCallUntil: lastseen.Instant(call),
	}
	switch a := lastseen.Availability(values[1]); a {
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
