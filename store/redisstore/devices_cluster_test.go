package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// devicesLog is what was asked of a store, whose calls may fail while servers change. All of it is asked again in the
// end, which is harmless, and then the store has what the rule says.
type devicesLog struct {
	*testing.T
	s     *redisstore.Store
	users []string
	asked []store.DeviceEvent // those without an ID are leaves on all devices
}

// next asks for something about each user, and checks that an error is an outage.
func (l *devicesLog) next() {
	l.Helper()
	for _, user := range l.users {
		n := len(l.asked)
		item := stores.OnDevice(user, fmt.Sprint("device", n%3), kit.Base+lastseen.Instant(n))
		item.Gone = n%4 == 0
		if n%7 == 0 {
			item.ID = ""
		}
		l.asked = append(l.asked, item)
		if err := l.ask(item); err != nil && !isOutage(err) {
			l.Errorf("not an outage: %v", err)
		}
		if _, err := l.s.ReadDevices(context.Background(), "chat", user); err != nil && !isOutage(err) {
			l.Errorf("not an outage: %v", err)
		}
	}
}

func (l *devicesLog) ask(item store.DeviceEvent) error {
	ctx := context.Background()
	if item.ID == "" {
		_, err := l.s.Leave(ctx, "chat", kit.Events(item.At, item.User))
		return err
	}
	_, err := l.s.RecordDevices(ctx, "chat", stores.Window, []store.DeviceEvent{item})
	return err
}

// requireTruth asks for all again, and compares what is stored with the rule.
func (l *devicesLog) requireTruth() {
	l.Helper()
	want := map[string]*store.UserDevices{}
	for _, item := range l.asked {
		stores.UntilSuccess(l.T, func() error { return l.ask(item) })
		if want[item.User] == nil {
			want[item.User] = &store.UserDevices{}
		}
		u := want[item.User]
		if item.ID == "" {
			u.State, u.Devices = u.Leave(u.State, item.At)
		} else {
			u.State, u.Devices = u.Assert(u.State, stores.Window, item.Record())
		}
	}
	for user, u := range want {
		var got store.UserDevices
		stores.UntilSuccess(l.T, func() (err error) {
			got, err = l.s.ReadDevices(context.Background(), "chat", user)
			return err
		})
		require.Equal(l, u.State, got.State, user)
		for i := range got.Records {
			got.Records[i].Since, u.Records[i].Since = 0, 0 // it depends on what failed
		}
		require.Equal(l, u.Of(u.State).Records, got.Records, user)
	}
}

// TestDevicesOnCluster is what leaves a Cluster as it was.
func TestDevicesOnCluster(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for _, test := range []struct {
		name    string
		run     func(*testing.T, *redistest.Cluster, *devicesLog)
		timeout time.Duration
	}{
		{"Slots", testDevicesWhileSlotsMove, stores.LongTimeout},
		{"HalfMoved", testDevicesInHalfASlot, shortTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := redisstore.Options{URL: c.URL(), Shards: 7, Timeout: test.timeout, DialTimeout: test.timeout}
			s := stores.New(t, o)
			log := &devicesLog{T: t, s: s, users: stores.Numbered("u", 15)}
			log.next()
			test.run(t, c, log)
			log.requireTruth()
			require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
			require.Empty(t, keysOf(t, c))
		})
	}
}

func testDevicesWhileSlotsMove(t *testing.T, c *redistest.Cluster, l *devicesLog) {
	for _, key := range []string{"presence:chat:1", "presence:chat:3", "presence:chat:1", "presence::meta"} {
		to := c.Next(t, key)
		require.NoError(t, to.Client(t).ScriptFlush(context.Background()).Err())
		c.MoveSlot(t, c.Slot(t, key), to, func() {
			l.s.ExpireMetaCache()
			l.next()
		})
	}
}

// testDevicesInHalfASlot: of a shard and its side keys some have moved and some have not. Redis refuses what needs
// several of them, and every call either fails as unavailable or is right.
func testDevicesInHalfASlot(t *testing.T, c *redistest.Cluster, l *devicesLog) {
	key := "presence:chat:3"
	l.users = l.users[:6] // calls that fail take a while
	moveInHalves(t, c, key, []string{key, stores.SideKey("devices", key), sidesKey(key)}, func(string) { l.next() })
}

// moveInHalves moves the slot of a shard to another primary once for each of its keys: first that key alone, then the
// others. It calls between after each step.
func moveInHalves(t *testing.T, c *redistest.Cluster, shard string, keys []string, between func(step string)) {
	t.Helper()
	for i, first := range keys {
		move := beginMove(t, c, shard)
		move.Keys(t, first)
		between("half")
		move.Keys(t, slices.Delete(slices.Clone(keys), i, i+1)...)
		between("moved")
		move.End(t)
		between("ended")
	}
}

// TestDevicesAfterFailover: the replica that takes over has the records, and whatever it lost comes with the next
// assertions.
func TestDevicesAfterFailover(t *testing.T) {
	t.Parallel()
	ctx, watched := context.Background(), redistest.StartSentinel(t)
	s := stores.New(t, redisstore.Options{URL: watched.URL(), Timeout: 250 * time.Millisecond})
	l := &devicesLog{T: t, s: s, users: stores.Numbered("u", 5)}
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	stores.UntilSuccess(t, func() error { return l.ask(stores.OnDevice("alice", "tab", kit.Base)) })
	l.next()
	stores.UntilSuccess(t, func() error { return s.CloseConnections(ctx, "chat", "alice") })
	stores.ReplicateAll(t, watched.Nodes[0].Client(t))
	watched.Nodes[0].Stop(t)
	l.next()
	l.requireTruth()
	live, _ := stores.Devices(t, s, "alice")
	require.Equal(t, []string{"tab"}, live)
	closed, _, err := s.Disconnects(ctx, "0")
	require.NoError(t, err)
	require.Len(t, closed, 1)
}
