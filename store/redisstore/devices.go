package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file records devices: see docs/decisions/redis-keys.md.

// RecordDevices implements [store.Store].
func (s *Store) RecordDevices(
	ctx context.Context, name string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	b := &eventBatch{Namespace: name}
	can := s.keys.namespace(name).hasSideKeys()
	for i := range batch {
		if can {
			b.Items = append(b.Items, store.PresenceEvent{User: batch[i].User, At: batch[i].At})
		}
	}
	s.record(ctx, 2*s.client.Timeout, []*eventBatch{b}, recording{devices: batch, window: window})
	if b.Err == nil && !can {
		return nil, store.ErrNoDevices
	}
	return b.States, b.Err
}

// maxDeviceTrip bounds the items of one round trip: see maxDeviceTrim.
const maxDeviceTrip = 2 * maxDeviceChunk

// createsOfDevices returns the letters of the side keys that a chunk may create: devices, metas, and details if a user
// does not use a device.
func (c writeCmd) createsOfDevices() string {
	letters := "r"
	for _, at := range c.index {
		if c.devices[at].Meta != "" {
			letters += "m"
		}
		if c.devices[at].Idle != 0 {
			letters += "d"
		}
	}
	return letters
}

// deviceArgs returns the arguments of devices.lua. Texts are passed as pointers: as strings, each would be copied into
// an interface.
func (c writeCmd) deviceArgs() []any {
	_, latest := c.times()
	window := c.window.Milliseconds()
	header := strconv.FormatInt(window, 10) + " 0"
	args := append(make([]any, 0, 3+3*len(c.index)), int64(latest), window, len(c.index))
	var metas []any
	for i, at := range c.index {
		item := &c.devices[at]
		text := deviceText(header, item)
		args = append(args, int64(item.At), &item.User, &text)
		if item.Meta != "" {
			metas = append(metas, i+1, &item.Meta)
		}
	}
	return append(args, metas...)
}

// leaveArgs returns the arguments of devices.lua for leaves on all devices.
func (c writeCmd) leaveArgs() []any {
	_, latest := c.times()
	none := ""
	args := append(make([]any, 0, 3+3*len(c.index)), int64(latest), 0, len(c.index))
	for _, at := range c.index {
		args = append(args, int64(c.unique[at].At), &c.unique[at].User, &none)
	}
	return args
}

// deviceText returns the record of an item as devices.lua expects it. header is the first line of the records.
func deviceText(header string, item *store.DeviceEvent) string {
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

// warnOfRecords logs a user whose records another program wrote.
func (s *Store) warnOfRecords(ns namespace, user any) {
	s.warnOnce(ns, "records", "the devices of a user cannot be read: they count as none", "user", user)
}

// ReadDevices implements [store.Store].
func (s *Store) ReadDevices(ctx context.Context, name, user string) (store.UserDevices, error) {
	var devices store.UserDevices
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoDevices)
	if err != nil {
		return devices, err
	}
	defer cancel()
	cmd := s.runShards(ctx, []shardCall{{
		namespace: c.namespace, shard: c.of(user), script: scripts.DevicesRead, reads: true, uses: "mr",
		args: []any{user},
	}})[0]
	reply, err := cmd.Slice()
	if err != nil || len(reply) == 0 {
		return devices, redisclient.Translate(err)
	}
	if devices.State, err = c.stateOfReply(reply[0]); err != nil || !devices.State.Known() {
		return devices, err
	}
	stored, metas, err := s.readRecords(c.namespace, user, reply[1:])
	if err != nil {
		return devices, err
	}
	devices.Devices = stored.Of(devices.State)
	devices.Meta = metasOf(devices.Records, stored.Records, metas)
	return devices, nil
}

// readRecords reads the records of a user and their metas from the rest of the reply; none if another program wrote
// them.
func (s *Store) readRecords(ns namespace, user string, reply []any) (d lastseen.Devices, metas []any, err error) {
	if len(reply) == 0 {
		return d, nil, nil
	}
	d, ok := parseDevices(reply[0])
	if !ok || len(reply) < 2 {
		s.warnOfRecords(ns, user)
		return lastseen.Devices{}, nil, nil
	}
	metas, err = redisclient.Slice(reply[1], len(d.Records))
	return d, metas, err
}

// metasOf returns the metas of records, given those of stored ones; "" for none.
func metasOf(records, stored []lastseen.DeviceRecord, metas []any) []string {
	byID := make(map[string]string, len(stored))
	for i, record := range stored {
		byID[record.ID], _ = metas[i].(string)
	}
	result := make([]string, len(records))
	for i, record := range records {
		result[i] = byID[record.ID]
	}
	return result
}

// parseDevices reads what is kept of a user's devices: see records.lua.
func parseDevices(reply any) (d lastseen.Devices, ok bool) {
	text, _ := reply.(string)
	lines := strings.Split(text, "\n")
	about, ok := parseNumbers(lines[0], 2)
	if !ok {
		return d, false
	}
	d.Window, d.Left = time.Duration(about[0])*time.Millisecond, lastseen.Instant(about[1])
	for _, line := range lines[1:] {
		head, rest, _ := strings.Cut(line, "\t")
		kind, id, _ := strings.Cut(head, " ")
		numbers, ok := parseNumbers(rest, 4)
		if !ok {
			return lastseen.Devices{}, false
		}
		d.Records = append(d.Records, lastseen.DeviceRecord{
			ID: id, Kind: lastseen.DeviceKind(kind),
			Gone: numbers[0] == 1, IdleSince: lastseen.Instant(numbers[1]),
			Since: lastseen.Instant(numbers[2]), At: lastseen.Instant(numbers[3]),
		})
	}
	return d, true
}

// parseNumbers reads n numbers with spaces between them.
func parseNumbers(text string, n int) (numbers []int64, ok bool) {
	for value := range strings.SplitSeq(text, " ") {
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, number)
	}
	return numbers, len(numbers) == n
}
