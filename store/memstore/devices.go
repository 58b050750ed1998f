package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxDeviceWrite is the number of events, or of leaves in a namespace with devices, that are recorded in one write,
// during which nothing can be read. One of a user with 32 devices takes about 30 to 50 µs.
const maxDeviceWrite = 256

// RecordDevices implements [store.Store].
func (s *Store) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	if len(batch) == 0 {
		return nil, s.read(ctx, func(*index) {})
	}
	if s.journal.Outlasts() {
		batch = slices.Clone(batch) // the write can outlast the call
	}
	user := func(event store.DeviceEvent) string { return event.User }
	return inParts(batch, user, func(part []store.DeviceEvent) ([]lastseen.State, error) {
		a := &deviceEvents{namespace: namespace, window: window, batch: part}
		if err := s.journal.Do(ctx, Write{op: a}); err != nil {
			return nil, err // and not states, which the write may still change
		}
		return a.states, a.err
	})
}

// inParts records a batch in several writes. It returns the state of each event's user after the last one.
func inParts[T any](
	batch []T, userOf func(T) string, record func(part []T) ([]lastseen.State, error),
) ([]lastseen.State, error) {
	users := make(map[string]lastseen.State, len(batch))
	for part := range slices.Chunk(batch, maxDeviceWrite) {
		states, err := record(part)
		if err != nil {
			return nil, err
		}
		for i, event := range part {
			users[userOf(event)] = states[i]
		}
	}
	states := make([]lastseen.State, len(batch))
	for i, event := range batch {
		states[i] = users[userOf(event)]
	}
	return states, nil
}

// ReadDevices implements [store.Store].
func (s *Store) ReadDevices(ctx context.Context, name, user string) (devices store.UserDevices, err error) {
	err = s.readIn(ctx, name, func(n *namespace) { devices = n.readDevices(user) })
	return devices, err
}

func (n *namespace) readDevices(user string) store.UserDevices {
	s := n.get(user)
	d, meta := n.users.devicesOf(user)
	u := store.UserDevices{State: s, Devices: d.Of(s)}
	for _, r := range u.Records {
		u.Meta = append(u.Meta, meta[indexOf(d.Records, r.ID)])
	}
	return u
}

// deviceEvents are a batch of pings and leaves of devices.
type deviceEvents struct {
	namespace string
	window    time.Duration
	batch     []store.DeviceEvent
	err       error            // why nothing was recorded
	states    []lastseen.State // the result
}

func (a *deviceEvents) do(t *transaction) {
	now := t.readClock()
	shown := a.shown(t, now)
	if len(shown) > 0 {
		if a.err = t.ensure(a.namespace); a.err != nil {
			return
		}
	}
	writes := deviceWrites{t: t, namespace: a.namespace, users: map[string]*deviceWrite{}}
	for _, event := range shown {
		w, r := writes.of(event.User), event.Record()
		r.At = store.Bounded(r.At, now)
		w.assert(a.window, r)
		if event.Meta != "" && indexOf(w.Records, r.ID) >= 0 { // too old an event makes no record
			w.setMeta(r.ID, event.Meta)
		}
	}
	writes.finish()
	a.states = make([]lastseen.State, len(a.batch))
	for i, event := range a.batch { // some may be hidden
		a.states[i] = writes.of(event.User).state
	}
}

// shown returns the events that are not hidden, without idle times that are.
func (a *deviceEvents) shown(t *transaction, now lastseen.Instant) []store.DeviceEvent {
	hides := t.hides(a.namespace, now)
	if hides == nil {
		return a.batch
	}
	shown := slices.DeleteFunc(slices.Clone(a.batch), func(s store.DeviceEvent) bool { return hides(s.User, s.At) })
	for i, s := range shown {
		if s.Idle != 0 && hides(s.User, s.Idle) {
			shown[i].Idle = s.At
		}
	}
	return shown
}

// hasDevices reports whether a namespace has had a device.
func (s *Store) hasDevices(namespace string) bool {
	s.tables.mu.RLock()
	defer s.tables.mu.RUnlock()
	n, ok := s.tables.index.namespaces.Get(namespace)
	return ok && n.users.devices != nil
}

// leaveDevices makes the leaves in a namespace that has devices.
func (a *events) leaveDevices(t *transaction, shown []store.PresenceEvent, now lastseen.Instant) {
	writes := deviceWrites{t: t, namespace: a.namespace, users: map[string]*deviceWrite{}}
	for _, event := range shown {
		w := writes.of(event.User)
		w.state, w.Devices = w.Leave(w.state, store.Bounded(event.At, now))
	}
	writes.finish()
	for i, event := range a.batch {
		a.states[i] = writes.of(event.User).state
	}
}

// deviceWrites are the writes of a batch to users and their devices. Each user is written once, at the end: the devices
// of one user can take kilobytes in the file.
type deviceWrites struct {
	t         *transaction
	namespace string
	users     map[string]*deviceWrite
	order     []*deviceWrite
}

// deviceWrite is the write to one user.
type deviceWrite struct {
	user string
	deviceChange
	state    lastseen.State
	before   lastseen.Devices
	stateWas lastseen.State
}

// deviceChange is what the devices of a user are now, and the meta of some of them, by the ID of the record.
type deviceChange struct {
	lastseen.Devices
	meta map[string]string
}

// of returns the write to a user, which begins with what is stored.
func (ws *deviceWrites) of(user string) *deviceWrite {
	w := ws.users[user]
	if w == nil {
		s, d := ws.t.get(ws.namespace, user), ws.t.devicesOf(ws.namespace, user)
		w = &deviceWrite{user: user, deviceChange: deviceChange{Devices: d}, before: d, state: s, stateWas: s}
		ws.users[user] = w
		ws.order = append(ws.order, w)
	}
	return w
}

// assert records what a device asserted.
func (w *deviceWrite) assert(window time.Duration, r lastseen.DeviceRecord) {
	old := w.Records
	w.state, w.Devices = w.Assert(w.state, window, r)
	for _, r := range old {
		if indexOf(w.Records, r.ID) < 0 {
			w.setMeta(r.ID, "") // also if it is back before the end of the batch
		}
	}
}

func (c *deviceChange) setMeta(record, meta string) {
	if c.meta == nil {
		c.meta = map[string]string{}
	}
	c.meta[record] = meta
}

// finish makes the writes that change anything.
func (ws *deviceWrites) finish() {
	for _, w := range ws.order {
		maps.DeleteFunc(w.meta, func(record, meta string) bool {
			return indexOf(w.Records, record) < 0 || ws.t.hasMeta(ws.namespace, w.user, record, meta)
		})
		switch {
		case len(w.meta) > 0 || !sameDevices(w.Devices, w.before):
			ws.t.setDevices(ws.namespace, w.user, w.state, w.deviceChange)
		case w.state != w.stateWas:
			ws.t.set(ws.namespace, w.user, w.state)
		}
	}
}

func sameDevices(a, b lastseen.Devices) bool {
	return a.Window == b.Window && a.Left == b.Left && slices.Equal(a.Records, b.Records)
}

// hasDevices reports whether a namespace has had a device.
func (t *transaction) hasDevices(namespace string) bool {
	n, ok := t.index.namespaces.Get(namespace)
	return ok && n.users.devices != nil || t.devices[namespace] != nil
}

// devicesOf returns the devices of a user.
func (t *transaction) devicesOf(namespace, user string) lastseen.Devices {
	if c, ok := t.devices[namespace][user]; ok {
		return c.Devices
	}
	d, _ := t.index.usersOf(namespace).devicesOf(user)
	return d
}

// hasMeta reports whether the meta of a record is a text. It returns false if that is not sure: then it is written.
func (t *transaction) hasMeta(namespace, user, record, text string) bool {
	if c, ok := t.devices[namespace][user]; ok {
		staged, known := c.meta[record] // otherwise it is in the index, or there is none
		return known && staged == text
	}
	d, meta := t.index.usersOf(namespace).devicesOf(user)
	if i := indexOf(d.Records, record); i >= 0 {
		return meta[i] == text
	}
	return text == ""
}

// setDevices changes the state and the devices of a user.
func (t *transaction) setDevices(namespace, user string, s lastseen.State, c deviceChange) {
	t.log.SetDevices(namespace, user, s, c.Devices, c.meta)
	if t.staged == nil {
		t.makeDevices(lastseen.UserKey{Namespace: namespace, User: user}, s, c)
		return
	}
	t.staged[lastseen.UserKey{Namespace: namespace, User: user}] = s
	meta := map[string]string{}
	maps.Copy(meta, t.devices[namespace][user].meta)
	for _, r := range t.devicesOf(namespace, user).Records {
		if indexOf(c.Records, r.ID) < 0 {
			meta[r.ID] = "" // also if the record is back before the flush
		}
	}
	maps.Copy(meta, c.meta)
	t.stageDevices(namespace, user, deviceChange{c.Devices, meta})
}

// stageDevices notes the devices of a user in a staged transaction. In a namespace without devices, it does nothing
// for a user without devices.
func (t *transaction) stageDevices(namespace, user string, c deviceChange) {
	if isZero(c.Devices) && !t.hasDevices(namespace) {
		return
	}
	if t.devices[namespace] == nil {
		t.devices[namespace] = map[string]deviceChange{}
	}
	t.devices[namespace][user] = c
}
