package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file writes what another store keeps. It calls no scripts: no server uses the namespaces meanwhile.

// importMarkKept is how long a Redis remembers that it is being copied to.
const importMarkKept = 30 * 24 * time.Hour

// Importing reports whether a copy to this Redis has begun and is not complete.
func Importing(ctx context.Context, s *Store) (bool, error) {
	n, err := s.client.Exists(ctx, s.keys.copying()).Result()
	return n > 0, redisclient.Translate(err)
}

// SetImporting notes that a copy to this Redis begins, or that it is complete.
func SetImporting(ctx context.Context, s *Store, begins bool) error {
	if !begins {
		return redisclient.Translate(s.client.Unlink(ctx, s.keys.copying()).Err())
	}
	return redisclient.Translate(s.client.Set(ctx, s.keys.copying(), "1", importMarkKept).Err())
}

// Names returns the namespaces in the list, and those that are stored in their own way and have users.
func Names(ctx context.Context, s *Store) (names []string, err error) {
	for after := ""; ; after = names[len(names)-1] {
		page, err := s.Namespaces(ctx, after, maxChunk)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			names = append(names, n.Name)
		}
		if len(page) < maxChunk {
			break
		}
	}
	for name := range s.keys.layouts {
		if newest, err := s.Newest(ctx, name); err != nil {
			return nil, err
		} else if newest != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Used reports whether anything is kept in a namespace that Export would read.
func Used(ctx context.Context, s *Store) (bool, error) {
	names, err := Names(ctx, s)
	for _, name := range names {
		if used, err := s.isUsed(ctx, s.keys.namespace(name)); err != nil || used {
			return used, err
		}
	}
	return false, err
}

// Clear deletes a namespace that the source of a copy does not have, or what is left of one that does not exist. It
// fails where other programs have members in the set.
func Clear(ctx context.Context, s *Store, name string) error {
	ns := s.keys.namespace(name)
	if !ns.shared {
		return s.DeleteNamespace(ctx, name)
	}
	n, err := s.members(ctx, ns)
	if err == nil && n > 0 {
		err = fmt.Errorf("the source has no namespace %s, and other programs write it in %s", name, ns.key)
	}
	return err
}

// Importer writes what other stores keep to one namespace. No server may use the namespace meanwhile.
type Importer struct {
	copier
	had    map[string]sides // before, by the key of the shard
	pipe   redis.Pipeliner
	states map[string][]any // arguments of ZADD, by the key of the shard
	hides  map[string]bool  // shards in which hidden times change
	queued []store.KeptChange
}

// NewImporter returns what writes to a namespace. It registers the namespace, unless only hidden times are kept of it:
// then it does not exist. The calls and the changes feed of the namespace end.
func NewImporter(ctx context.Context, s *Store, name string, exists bool) (*Importer, error) {
	if exists {
		if err := s.Register(ctx, []string{name}); err != nil {
			return nil, err
		}
	}
	c, err := openCopier(ctx, s, name)
	if err != nil {
		return nil, err
	}
	i := &Importer{copier: *c, pipe: s.client.Pipeline(), had: maps.Clone(c.has)}
	i.begin()
	if !c.hasSideKeys() {
		return i, nil
	}
	for key := range c.has {
		for _, letter := range "fsk" {
			i.pipe.Unlink(ctx, i.sideKey(key, letter))
		}
		i.pipe.Unlink(ctx, i.sidesKey(key))
		c.has[key] = "-" + sideLetters // as far as they are read back
	}
	_, err = i.pipe.Exec(ctx)
	return i, cmp.Or(redisclient.Translate(err), s.deleteCalls(ctx, c.namespace))
}

func (i *Importer) begin() { i.states, i.hides, i.queued = map[string][]any{}, map[string]bool{}, nil }

// maxQueued is how many commands wait for a round trip.
const maxQueued = 2000

// Change makes a change, at the latest with Close, and reads it back. It fails where other programs write the set of
// the namespace, and something else than a state is to be kept.
func (i *Importer) Change(ctx context.Context, change store.KeptChange) error {
	user, was, now := change.User, change.Was, change.Now
	key := i.of(user)
	if plain := (store.Kept{State: now.State}); !i.hasSideKeys() && !now.Equal(plain) {
		return fmt.Errorf("%s: devices, availability and contacts cannot be kept in %s, which other programs write: %w",
			i.name, key, store.ErrNoDevices)
	}
	switch {
	case now.State.Known() && now.State != was.State:
		i.states[key] = append(i.states[key], i.score(now.State), user)
	case was.State.Known() && !now.State.Known():
		i.pipe.ZRem(ctx, key, user)
	}
	if i.hasSideKeys() {
		i.changeDevices(ctx, key, user, was, now)
		i.changeSaid(ctx, key, user, was, now)
		i.changeContacts(ctx, key, user, was, now)
	}
	if i.queued = append(i.queued, change); len(i.queued)+i.pipe.Len() < maxQueued {
		return nil
	}
	return i.flush(ctx)
}

// score returns the score of a state.
func (e encoding) score(s lastseen.State) string {
	if s.Left {
		return "-" + e.time(s.At)
	}
	return e.time(s.At)
}

func (i *Importer) changeDevices(ctx context.Context, key, user string, was, now store.Kept) {
	i.set(ctx, i.sideKey(key, 'r'), user, devicesText(was.Devices), devicesText(now.Devices))
	if !was.State.Known() && i.had[key].has("r") && devicesText(now.Devices) == "" {
		i.pipe.HDel(ctx, i.sideKey(key, 'r'), user) // records of a user without a state count again with a state
	}
	for id, text := range was.Meta {
		i.set(ctx, i.sideKey(key, 'm'), metaField(user, id), text, now.Meta[id])
	}
	for id, text := range now.Meta {
		i.set(ctx, i.sideKey(key, 'm'), metaField(user, id), was.Meta[id], text)
	}
}

// set writes the field of a hash if it changes; "" is none.
func (i *Importer) set(ctx context.Context, key, field, was, now string) {
	switch {
	case was == now:
	case now == "":
		i.pipe.HDel(ctx, key, field)
	default:
		i.pipe.HSet(ctx, key, field, now)
	}
}

// changeSaid writes what a user says, to others and to no one.
func (i *Importer) changeSaid(ctx context.Context, key, user string, was, now store.Kept) {
	i.set(ctx, i.sideKey(key, 'd'), user, detailsText(was), detailsText(now))
	switch {
	case was.Availability.Until == now.Availability.Until:
	case now.Availability.Until == 0:
		i.pipe.ZRem(ctx, i.sideKey(key, 'e'), user)
	default:
		i.pipe.ZAdd(ctx, i.sideKey(key, 'e'), redis.Z{Score: float64(now.Availability.Until), Member: user})
	}
	if was.Hidden == now.Hidden {
		return
	}
	i.hides[key] = true
	hidden, private := i.sideKey(key, 'h'), i.sideKey(key, 'p')
	if now.Hidden.End == 0 {
		i.pipe.ZRem(ctx, hidden, user)
		i.pipe.HDel(ctx, private, user)
		return
	}
	end := strconv.FormatInt(int64(now.Hidden.End), 10)
	text := end
	if !now.Hidden.Ended {
		text = strconv.FormatInt(int64(now.Hidden.Until), 10) + " " + now.Hidden.Note
	}
	if now.Hidden.End == lastseen.MaxInstant {
		end = "+inf"
	}
	i.pipe.Do(ctx, "zadd", hidden, end, user)
	i.pipe.HSet(ctx, private, user, text)
}

func (i *Importer) changeContacts(ctx context.Context, key, owner string, was, now store.Kept) {
	contacts, uses := i.sideKey(key, 'c'), i.sideKey(key, 'u')
	members := func(of []string) (all []any) {
		for _, contact := range of {
			all = append(all, memberOf(owner, contact))
		}
		return all
	}
	for part := range slices.Chunk(members(store.Without(was.Contacts, now.Contacts)), maxChunk) {
		i.pipe.ZRem(ctx, contacts, part...)
	}
	for part := range slices.Chunk(members(store.Without(now.Contacts, was.Contacts)), maxChunk) {
		added := make([]redis.Z, len(part))
		for n, member := range part {
			added[n].Member = member
		}
		i.pipe.ZAdd(ctx, contacts, added...)
	}
	switch {
	case was.Used == now.Used:
	case now.Used == 0:
		i.pipe.ZRem(ctx, uses, owner)
	default:
		i.pipe.ZAdd(ctx, uses, redis.Z{Score: float64(now.Used), Member: owner})
	}
}

// flush makes the changes that wait, in about one round trip, and reads back what is kept then.
func (i *Importer) flush(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(i.states)) {
		for part := range slices.Chunk(i.states[key], 2*maxChunk) {
			i.pipe.Do(ctx, append([]any{"zadd", key}, part...)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(i.hides)) {
		if err := i.mark(ctx, key); err != nil {
			return err
		}
	}
	changes := i.queued
	i.begin()
	if i.pipe.Len() == 0 {
		return nil
	}
	if _, err := i.pipe.Exec(ctx); err != nil {
		return redisclient.Translate(err)
	}
	users := make([]string, len(changes))
	for n := range changes {
		users[n] = changes[n].User
	}
	kept, err := i.read(ctx, users)
	for n := range kept {
		if err == nil && !kept[n].Equal(changes[n].Now) {
			err = fmt.Errorf("%s: %q is kept as %+v instead of %+v: is a server running?", i.name, users[n], kept[n],
				changes[n].Now)
		}
	}
	return err
}

// mark gives both keys of hidden times the next mark: see sidekeys.lua.
func (i *Importer) mark(ctx context.Context, key string) error {
	hidden, private := i.sideKey(key, 'h'), i.sideKey(key, 'p')
	mark, err := i.client.ZScore(ctx, hidden, "").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return redisclient.Translate(err)
	}
	next := strconv.FormatInt(min(-time.Now().UnixMilli(), int64(mark)-1), 10)
	i.pipe.Do(ctx, "zadd", hidden, next, "")
	i.pipe.HSet(ctx, private, "", next)
	return nil
}

// Close makes the changes that wait, and notes which side keys there are.
func (i *Importer) Close(ctx context.Context) error {
	if err := i.flush(ctx); err != nil {
		return err
	}
	_, err := i.sidesOf(ctx, i.namespace)
	return err
}

// devicesText returns what parseDevices reads; "" for no devices.
func devicesText(d lastseen.Devices) string {
	if d.Left == 0 && len(d.Records) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d", d.Window.Milliseconds(), d.Left)
	for _, r := range d.Records {
		gone := 0
		if r.Gone {
			gone = 1
		}
		fmt.Fprintf(&b, "\n%s %s\t%d %d %d %d", r.Kind, r.ID, gone, r.IdleSince, r.Since, r.At)
	}
	return b.String()
}

// detailsText returns what parseDetails reads; "" for no details.
func detailsText(k store.Kept) string {
	idle, _ := k.Devices.Activity(lastseen.MinInstant)
	a := k.Availability
	if idle == 0 && a == (lastseen.AvailabilityState{}) {
		return ""
	}
	return fmt.Sprintf("%d %s %d %s", idle, cmp.Or(string(a.Availability), "-"), a.Until, a.Note)
}
