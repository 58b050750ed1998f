package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file records devices, and names their keys: see docs/decisions/redis-keys.md.

// records returns the key of the records of the users of a shard, and metas that of what clients said about them.
func (n namespace) records(shard string) string { return n.companion("devices", shard) }
func (n namespace) metas(shard string) string   { return n.companion("devicemeta", shard) }

// deviceKeys returns the keys of a feed and of devices, as scripts about devices take them after the shard's.
func (n namespace) deviceKeys(shard string) []string {
	return append(n.companions(shard), n.records(shard), n.metas(shard))
}

// RecordDevices implements [store.Store].
func (s *Store) RecordDevices(
	ctx context.Context, name string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	d := &pendingDevices{
		pendingBatch: pendingBatch{candidate: candidate{namespace: s.keys.namespace(name)}},
		window:       window, items: batch, states: make(map[string]lastseen.State, len(batch)),
	}
	if !d.hasCompanions() {
		return nil, store.ErrNoDevices
	}
	if len(batch) == 0 {
		return nil, nil
	}
	s.verify(ctx, []*candidate{&d.candidate})
	if s.allDevicesHidden(ctx, d) {
		return d.result(), nil
	}
	if s.admit(ctx, []*candidate{&d.candidate}); d.err != nil {
		return nil, d.err
	}
	if err := s.setDeviceBits(ctx, d); err != nil {
		return nil, err
	}
	if s.writeDevices(confirmed(ctx), d); d.err != nil {
		s.agreements.recheck(name) // see record
		return nil, d.err
	}
	return d.result(), s.afterDevices(ctx, d)
}

// setDevicesBit has all servers handle records when users leave: this one at once, others when they check the namespace
// again. Until then they may write leaves that mark no record, which the rule allows for: see from in package lastseen.
func (s *Store) setDevicesBit(ctx context.Context, c *candidate) error {
	if c.bits.devices.set {
		return nil
	}
	set, err := s.setBit(ctx, devicesField(c.name))
	if err == nil {
		c.bits.devices = set
		s.agreements.change(c.name, func(b *bits) { b.devices = set })
	}
	return err
}

// afterDevices does what a write found to be necessary: another server may have deleted the namespace, or its feed
// ended.
func (s *Store) afterDevices(ctx context.Context, d *pendingDevices) error {
	if d.missing {
		s.dropBit(ctx, d.name, d.bits.feed)
	}
	if !d.created {
		return nil
	}
	if s.register(ctx, []*candidate{&d.candidate}, 0); d.err != nil {
		return d.err
	}
	return s.setDeviceBits(ctx, d)
}

// setDeviceBits sets the bits that a batch needs: that of details if a user does not use a device.
func (s *Store) setDeviceBits(ctx context.Context, d *pendingDevices) error {
	if err := s.setDevicesBit(ctx, &d.candidate); err != nil {
		return err
	}
	if slices.ContainsFunc(d.items, func(item store.DeviceSighting) bool { return item.Idle != 0 }) {
		return s.setDetailsBit(ctx, &d.candidate)
	}
	return nil
}

// pendingDevices is a batch that is being written.
type pendingDevices struct {
	pendingBatch // without a batch
	window       time.Duration
	items        []store.DeviceSighting
	states       map[string]lastseen.State // of the users, after their last item
}

// result returns the state of each item's user.
func (d *pendingDevices) result() []lastseen.State {
	states := make([]lastseen.State, len(d.items))
	for i := range d.items {
		states[i] = d.states[d.items[i].User]
	}
	return states
}

// writeDevices sends a batch to its shards, in as few round trips as [maxMembers] allows, and fills in the states.
func (s *Store) writeDevices(ctx context.Context, d *pendingDevices) {
	chunks := d.split(len(d.items), maxDeviceChunk, func(i int) string { return d.items[i].User })
	for len(chunks) > 0 && d.err == nil {
		n, members := 0, 0
		for n < len(chunks) && (n == 0 || members+len(chunks[n].index) <= maxMembers) {
			members += len(chunks[n].index)
			n++
		}
		s.sendDevices(ctx, d, chunks[:n])
		chunks = chunks[n:]
	}
}

func (s *Store) sendDevices(ctx context.Context, d *pendingDevices, chunks []*chunk) {
	calls := make([]call, len(chunks))
	for i, c := range chunks {
		if d.bits.feed.set {
			s.mayAppend(ctx, d.namespace, c.key)
		}
		calls[i] = call{key: c.key, others: d.othersOf(c.key), args: d.args(c)}
	}
	script := choose(d.bits.hidden.set, scripts.devicesHidden, scripts.devices)
	for i, cmd := range s.runScripts(ctx, script, calls) {
		err := translate(cmd.Err())
		if err == nil {
			err = s.readDeviceStates(d, chunks[i], cmd)
		}
		if d.err == nil {
			d.err = err
		}
		s.replicas.wroteChunk(&d.candidate, chunks[i], cmd, func(at int) string { return d.items[at].User })
	}
}

// args returns the arguments of devices.lua. Texts are passed as pointers: as strings, each would be copied into an
// interface.
func (d *pendingDevices) args(c *chunk) []any {
	latest, window := lastseen.Instant(0), d.window.Milliseconds()
	header := strconv.FormatInt(window, 10) + " 0"
	args := append(make([]any, 0, 4+3*len(c.index)), linkBase(), nil, window, len(c.index))
	var metas []any
	for i, at := range c.index {
		item := &d.items[at]
		latest = max(latest, item.At)
		said := saidOf(header, item)
		args = append(args, int64(item.At), &item.User, &said)
		if item.Meta != "" {
			metas = append(metas, i+1, &item.Meta)
		}
	}
	args[1] = int64(latest)
	return append(args, metas...)
}

// leaveArgs returns the arguments of devices.lua for leaves on all devices.
func (c writeCmd) leaveArgs() []any {
	none, latest := "", lastseen.Instant(0)
	args := append(make([]any, 0, 4+3*len(c.index)), linkBase(), nil, 0, len(c.index))
	for _, at := range c.index {
		sighting := &c.unique[at]
		latest = max(latest, sighting.At)
		args = append(args, int64(sighting.At), &sighting.User, &none)
	}
	args[1] = int64(latest)
	return args
}

// saidOf returns what an item says about a record, as devices.lua takes it. header is the first line of the records.
func saidOf(header string, item *store.DeviceSighting) string {
	switch {
	case item.Gone:
		return "\n" + string(item.Kind) + " " + item.ID + "\t1 0 "
	case item.Kind == "":
		header = ""
	default:
		header += "\n" + string(item.Kind)
	}
	return header + " " + item.ID + "\t0 " + strconv.FormatInt(int64(item.Idle), 10) + " "
}

// readDeviceStates reads the reply to a chunk.
func (s *Store) readDeviceStates(d *pendingDevices, c *chunk, cmd *redis.Cmd) error {
	parts, err := sliceOf(cmd.Val(), -1)
	if err != nil {
		return err
	}
	if len(parts) < 4 {
		return errors.New("script reply too short")
	}
	d.created = d.created || parts[0] == int64(1)
	d.missing = d.missing || parts[3] == int64(1)
	if len(parts) > 4 && parts[4] != nil {
		s.warnOfRecords(d.namespace, parts[4])
	}
	if parts[1] == nil {
		for _, at := range c.index {
			d.states[d.items[at].User] = lastseen.State{At: d.items[at].At}
		}
		return nil
	}
	scores, err := sliceOf(parts[1], len(c.index))
	if err != nil {
		return err
	}
	hides := len(parts) > hidesPart
	for i, at := range c.index {
		state, err := d.stateOfReply(scores[i])
		if err != nil {
			return err
		}
		if d.states[d.items[at].User] = state; !hides && state.Known() && state.At < d.items[at].At {
			s.replaced.Add(1)
		}
	}
	return nil
}

// warnOfRecords logs a user whose records another program wrote.
func (s *Store) warnOfRecords(ns namespace, user any) {
	s.warnOnce(ns, "records", "the devices of a user cannot be read: they count as none", "user", user)
}
