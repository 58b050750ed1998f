package devices

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testDevicesModel compares a store with the methods of lastseen.Devices, step by step.
func testDevicesModel(tb *testing.T, open kit.Open) {
	s := open(tb)
	rapid.Check(tb, func(t *rapid.T) {
		require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
		m := &deviceModel{T: t, s: s, users: map[string]*store.UserDevices{}, now: kit.Base}
		m.metas, m.left = map[string]string{}, map[string][]lastseen.Instant{}
		m.write(On("u0", "first", kit.Base)) // from here on, leaves concern devices
		few := rapid.SampledFrom([]int{1, 2, 3, 40}).Draw(t, "devices")
		m.id = rapid.Map(rapid.IntRange(1, few), func(n int) string {
			return []string{"B", "a", "é", "z z"}[n%4] + fmt.Sprint(n/4)
		})
		t.Repeat(map[string]func(*rapid.T){
			"devices": m.devices, "again": m.again, "back": m.back, "leave": m.leave, "ping": m.ping,
			"forget": m.forget, "": m.compare,
		})
	})
}

// deviceModel is what should be stored.
type deviceModel struct {
	*rapid.T
	s     store.Store
	users map[string]*store.UserDevices
	metas map[string]string             // by user and record
	left  map[string][]lastseen.Instant // the leaves of each user on all devices
	id    *rapid.Generator[string]
	now   lastseen.Instant
}

func (m *deviceModel) user(name string) *store.UserDevices {
	if m.users[name] == nil {
		m.users[name] = &store.UserDevices{}
	}
	return m.users[name]
}

var (
	anyUser   = rapid.SampledFrom([]string{"u0", "u1", "u 2"})
	anyWindow = rapid.SampledFrom([]time.Duration{40 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond})
)

// time returns a time around now, which goes on.
func (m *deviceModel) time(t *rapid.T) lastseen.Instant {
	m.now += lastseen.Instant(rapid.IntRange(0, 5).Draw(t, "pass"))
	if rapid.Bool().Draw(t, "late") {
		return m.now - lastseen.Instant(rapid.IntRange(0, 80).Draw(t, "by"))
	}
	return m.now
}

func (m *deviceModel) devices(t *rapid.T) {
	most := rapid.SampledFrom([]int{1, 1, 2, 50}).Draw(t, "most")
	m.write(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.DeviceEvent {
		item := store.DeviceEvent{
			User: anyUser.Draw(t, "user"), ID: m.id.Draw(t, "id"), At: m.time(t), Kind: lastseen.Web,
			Gone: rapid.IntRange(0, 3).Draw(t, "gone") == 0,
			Meta: rapid.SampledFrom([]string{"", "", "", `{"a":1}`, `{"b":"\n"}`}).Draw(t, "meta"),
		}
		if rapid.Bool().Draw(t, "odd") {
			item.Kind = rapid.SampledFrom(append(lastseen.DeviceKinds(), "", "")).Draw(t, "kind")
			item.Idle = m.time(t)
		}
		return item
	}), 1, most).Draw(t, "batch")...)
}

// again pings a known device, around the times that matter.
func (m *deviceModel) again(t *rapid.T) {
	user := anyUser.Draw(t, "user")
	u := m.user(user)
	if len(u.Records) == 0 {
		return
	}
	r := rapid.SampledFrom(u.Records).Draw(t, "record")
	times := []lastseen.Instant{r.At, u.State.At, u.Records[len(u.Records)-1].At.Add(u.Window)}
	at := rapid.SampledFrom(times).Draw(t, "of") + lastseen.Instant(rapid.IntRange(-1, 2).Draw(t, "off"))
	m.now = max(m.now, at)
	kind := rapid.SampledFrom([]lastseen.DeviceKind{r.Kind, ""}).Draw(t, "kind")
	m.writeIn(u.Window, store.DeviceEvent{User: user, ID: r.ID, Kind: kind, Idle: r.IdleSince, At: at})
}

// back pings a device, known or not, later than anything before.
func (m *deviceModel) back(t *rapid.T) {
	user := anyUser.Draw(t, "user")
	m.now += lastseen.Instant(rapid.IntRange(1, 30).Draw(t, "pass"))
	window := max(m.user(user).Window, 40*time.Millisecond)
	m.writeIn(window, store.DeviceEvent{User: user, ID: m.id.Draw(t, "id"), Kind: lastseen.Web, At: m.now})
}

func (m *deviceModel) write(batch ...store.DeviceEvent) {
	m.writeIn(anyWindow.Draw(m.T, "window"), batch...)
}

func (m *deviceModel) writeIn(window time.Duration, batch ...store.DeviceEvent) {
	states, err := m.s.RecordDevices(context.Background(), kit.Namespace, window, batch)
	require.NoError(m, err)
	for _, item := range batch {
		u := m.user(item.User)
		u.State, u.Devices = u.Assert(u.State, window, item.Record())
		m.forgetMetas(item.User)
		kept := slices.ContainsFunc(u.Records, func(r lastseen.DeviceRecord) bool { return r.ID == item.ID })
		if item.Meta != "" && kept {
			m.metas[item.User+"\n"+item.ID] = item.Meta
		}
	}
	for i, item := range batch {
		require.Equal(m, m.user(item.User).State, states[i])
	}
}

// forgetMetas deletes the metas of records that are not kept any longer.
func (m *deviceModel) forgetMetas(user string) {
	kept := map[string]string{}
	for _, r := range m.user(user).Records {
		if meta := m.metas[user+"\n"+r.ID]; meta != "" {
			kept[user+"\n"+r.ID] = meta
		}
	}
	for name, meta := range m.metas {
		if len(name) > len(user) && name[:len(user)+1] != user+"\n" {
			kept[name] = meta
		}
	}
	m.metas = kept
}

func (m *deviceModel) leave(t *rapid.T) {
	at, user := m.time(t), anyUser.Draw(t, "user")
	states, err := m.s.Leave(context.Background(), kit.Namespace, kit.Events(at, user, user))
	require.NoError(t, err)
	u := m.user(user)
	m.left[user] = append(m.left[user], at)
	u.State, u.Devices = u.Leave(u.State, at)
	m.forgetMetas(user)
	require.Equal(t, []lastseen.State{u.State, u.State}, states)
}

func (m *deviceModel) ping(t *rapid.T) {
	at, user := m.time(t), anyUser.Draw(t, "user")
	states, err := m.s.Ping(context.Background(), kit.Namespace, kit.Events(at, user))
	require.NoError(t, err)
	u := m.user(user)
	u.State = u.State.AfterPing(at)
	require.Equal(t, []lastseen.State{u.State}, states)
}

func (m *deviceModel) forget(t *rapid.T) {
	user := anyUser.Draw(t, "user")
	require.NoError(t, m.s.Forget(context.Background(), kit.Namespace, user))
	delete(m.users, user)
	delete(m.left, user)
	m.forgetMetas(user)
}

// compare compares what is stored of every user.
func (m *deviceModel) compare(t *rapid.T) {
	for name, u := range m.users {
		got, err := m.s.ReadDevices(context.Background(), kit.Namespace, name)
		require.NoError(t, err)
		want := store.UserDevices{State: u.State}
		if u.State.Known() {
			want.Devices = u.Of(u.State)
		}
		for _, r := range want.Records {
			want.Meta = append(want.Meta, m.metas[name+"\n"+r.ID])
		}
		if len(want.Records) == 0 && got.Left != want.Left {
			m.adopt(t, name, got)
			continue
		}
		require.Equal(t, ofRecords(want), ofRecords(got), name)
	}
}

// adopt takes over what a store has of a user without records, if it is another leave. A store may have forgotten the
// window of the last record, and then keeps a leave that is too old for any: with a longer window of the next record,
// it may count.
func (m *deviceModel) adopt(t *rapid.T, name string, got store.UserDevices) {
	u := m.users[name]
	require.Equal(t, store.UserDevices{State: u.State}, ofRecords(got), name)
	require.Contains(t, append(m.left[name], 0), got.Left, name)
	u.Devices = got.Devices
}

// ofRecords returns devices without what says nothing while there are no records: their window, and a leave.
func ofRecords(d store.UserDevices) store.UserDevices {
	if len(d.Records) == 0 && len(d.Meta) == 0 {
		return store.UserDevices{State: d.State}
	}
	return d
}
