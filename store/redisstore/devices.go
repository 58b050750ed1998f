package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file records devices: see docs/decisions/redis-keys.md.

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
	if s.writeDevices(confirmed(ctx), d); d.err != nil {
		s.agreements.recheck(name) // see record
		return nil, d.err
	}
	if d.created { // perhaps since another server deleted the namespace
		s.register(ctx, []*candidate{&d.candidate}, 0)
	}
	return d.result(), d.err
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

// maxDeviceTrip bounds the items of one round trip: see maxDeviceTrim.
const maxDeviceTrip = 2 * maxDeviceChunk

// writeDevices sends a batch to its shards, in as few round trips as [maxDeviceTrip] allows, and fills in the states.
func (s *Store) writeDevices(ctx context.Context, d *pendingDevices) {
	chunks := d.split(len(d.items), maxDeviceChunk, func(i int) string { return d.items[i].User })
	for len(chunks) > 0 && d.err == nil {
		n, members := 0, 0
		for n < len(chunks) && (n == 0 || members+len(chunks[n].index) <= maxDeviceTrip) {
			members += len(chunks[n].index)
			n++
		}
		s.sendDevices(ctx, d, chunks[:n])
		chunks = chunks[n:]
	}
}

func (s *Store) sendDevices(ctx context.Context, d *pendingDevices, chunks []*chunk) {
	calls := make([]shardCall, len(chunks))
	for i, c := range chunks {
		creates := d.creates(c)
		calls[i] = shardCall{
			namespace: d.namespace, shard: c.key, script: scripts.devices,
			prepare: func(has sides) (string, string, []any) {
				return "dfhmpr", creates + s.feedLetters(ctx, d.namespace, c.key, has), d.args(c)
			},
		}
	}
	for i, cmd := range s.runShards(ctx, calls) {
		err := translate(cmd.Err())
		if err == nil {
			err = s.readDeviceStates(d, chunks[i], cmd)
		}
		if d.err == nil {
			d.err = err
		}
	}
}

// creates returns the letters of the side keys that a chunk may create: devices, metas, and details if a user does not
// use a device.
func (d *pendingDevices) creates(c *chunk) string {
	letters := "r"
	for _, at := range c.index {
		if d.items[at].Meta != "" {
			letters += "m"
		}
		if d.items[at].Idle != 0 {
			letters += "d"
		}
	}
	return letters
}

// args returns the arguments of devices.lua. Texts are passed as pointers: as strings, each would be copied into an
// interface.
func (d *pendingDevices) args(c *chunk) []any {
	latest, window := lastseen.Instant(0), d.window.Milliseconds()
	header := strconv.FormatInt(window, 10) + " 0"
	args := append(make([]any, 0, 6+3*len(c.index)), linkBase(), nil, window, len(c.index))
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
	args := append(make([]any, 0, 6+3*len(c.index)), linkBase(), nil, 0, len(c.index))
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
