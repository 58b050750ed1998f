package filestore

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// deviceFlushes, availabilityFlushes and contactFlushes are the cases of TestOneFlush: writes that are made in one
// flush.
func deviceFlushes() map[string][]func(*Store) error {
	said := func(s store.DeviceEvent, meta string) store.DeviceEvent {
		s.Meta = meta
		return s
	}
	bye := func(user, id string, at lastseen.Instant) store.DeviceEvent {
		s := devices.On(user, id, at)
		s.Gone = true
		return s
	}
	chat := func(batch ...store.DeviceEvent) func(*Store) error { return devicesOf("chat", batch...) }
	on, late := devices.On, base.Add(2*time.Minute)
	return map[string][]func(*Store) error{
		"first and leave": {
			chat(on("alice", "a", base)), leaveOf("alice", base+1), chat(on("alice", "b", base)),
		},
		"leave before the first": {leaveOf("bob", base+1), chat(on("bob", "b", base))},
		"forgotten device": {
			chat(said(on("alice", "a", base), "{}")), forgetOf("alice"), chat(on("alice", "a", base)),
		},
		"old: forgotten device": {forgetOf("old"), chat(on("old", "a", base))},
		"device forgotten last": {
			chat(said(on("alice", "a", base), "{}")), forgetOf("alice"),
		},
		"old: forgotten, then a leave": {
			forgetOf("old"), leaveOf("old", base-5), chat(bye("old", "z", base-5)),
		},
		"deleted and back": {
			chat(said(on("alice", "a", base), "{}")), chat(on("alice", "b", late)), chat(on("alice", "a", late)),
		},
		"old: deleted and back": {
			chat(on("old", "b", late)), chat(on("old", "a", late)),
		},
		"old: deleted and back in one batch": {
			chat(on("old", "b", late), on("old", "a", late)),
		},
		"meta of both": {
			chat(said(on("alice", "a", base), "1"), said(on("alice", "b", base), "2")),
			chat(said(on("alice", "a", base+1), "3")), chat(on("alice", "b", base+1)),
		},
		"the last leave": {
			chat(on("alice", "a", base), on("alice", "b", base)),
			chat(bye("alice", "a", base+1)), chat(bye("alice", "b", base+2)),
		},
		"another namespace": {
			devicesOf("other", on("alice", "a", base)), leaveOf("alice", base+1), leaveOf("old", base+1),
		},
	}
}

func availabilityFlushes() map[string][]func(*Store) error {
	idle := devices.On("alice", "a", base+5)
	idle.Idle = base
	until := invisible
	until.Until = base + 100
	return map[string][]func(*Store) error{
		"said":            {pingOf("alice", base), sayOf("alice", busy), sayOf("alice", away)},
		"said before":     {sayOf("alice", busy), pingOf("alice", base)},
		"said and not":    {sayOf("alice", busy), sayOf("alice", lastseen.AvailabilityState{})},
		"hidden":          {sayOf("alice", invisible), pingOf("alice", base+5), leaveOf("alice", base+6)},
		"hidden device":   {sayOf("alice", invisible), devicesOf("chat", idle)},
		"hidden and not":  {sayOf("alice", invisible), sayAtOf("alice", busy, base+5), pingOf("alice", base+4)},
		"seen again":      {sayOf("alice", invisible), sayAtOf("alice", busy, base+5), pingOf("alice", base+5)},
		"invisible again": {sayOf("alice", invisible), sayAtOf("alice", until, base+5), pingOf("alice", base+101)},
		"devices":         {devicesOf("chat", idle), sayAtOf("alice", invisible, base+6), devicesOf("chat", idle)},
		"idle":            {devicesOf("chat", idle), sayOf("alice", busy)},
		"forgotten": {
			sayOf("alice", busy), sayOf("bob", invisible), forgetOf("alice"), forgetOf("bob"), pingOf("bob", base),
		},
		"forgotten last":     {sayOf("alice", busy), sayOf("alice", invisible), forgetOf("alice")},
		"old: forgotten":     {forgetOf("old"), pingOf("old", base-10)},
		"old: ended":         {sayAtOf("old", busy, base+10), pingOf("old", base+9), pingOf("old", base+10)},
		"old: hidden":        {pingOf("old", base+10), sayOf("alice", busy)},
		"old: forgot, said":  {forgetOf("old"), sayOf("old", away)},
		"old: said, forgot":  {sayAtOf("old", away, base+5), forgetOf("old")},
		"unlisted: forgot":   {forgetOf("gone")},
		"unlisted: ended":    {sayAtOf("gone", lastseen.AvailabilityState{}, base+5)},
		"unlisted: again":    {sayAtOf("gone", until, base+5)},
		"unlisted: listed":   {pingOf("gone", base+5), pingOf("bob", base), sayAtOf("gone", busy, base+6)},
		"unlisted: and said": {sayAtOf("gone", busy, base+6)},
	}
}

func contactFlushes() map[string][]func(*Store) error {
	set := func(contacts string) func(*Store) error {
		return func(s *Store) error {
			return s.SetContacts(context.Background(), "chat", "alice", strings.Fields(contacts))
		}
	}
	change := func(add, remove string) func(*Store) error {
		return func(s *Store) error {
			return s.ChangeContacts(context.Background(), "chat", "alice", strings.Fields(add), strings.Fields(remove))
		}
	}
	device := devicesOf("chat", devices.On("alice", "a", base))
	return map[string][]func(*Store) error{
		"contacts":           {set("b c"), change("d e", "b"), change("b", "d")},
		"contacts replaced":  {change("d e", ""), set("b")},
		"contacts forgotten": {set("b"), forgetOf("alice")},
		"contacts are back":  {set("b"), forgetOf("alice"), change("c", "d")},
		"contacts of a known user": {
			device, set("b"), forgetOf("alice"), device, change("c", "d"),
		},
	}
}

// beforeFlush makes what the name of a case begins with: a user old, or a hidden user of a namespace that does not
// exist.
func beforeFlush(t *testing.T, s *Store, name string, onDevice bool) {
	t.Helper()
	switch what, _, _ := strings.Cut(name, ":"); {
	case what == "unlisted":
		unlisted(t, s)
	case what == "old" && onDevice:
		device := devices.On("old", "a", base)
		device.Meta = "old"
		recordDevices(t, s, device)
	case what == "old":
		availability.SetIn(t, s, "chat", "old", busy, base)
		availability.SetIn(t, s, "chat", "old", invisible, base)
	}
}

// TestOneFlush: writes of one flush see each other: the result is that of the same writes one after the other.
func TestOneFlush(t *testing.T) {
	t.Parallel()
	for name, writes := range deviceFlushes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, each := afterWrites(t, name, writes, 0, true), afterWrites(t, name, writes, time.Hour, true)
			require.Equal(t, each, one)
		})
	}
	all := availabilityFlushes()
	maps.Copy(all, contactFlushes())
	for name, writes := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, each := afterWrites(t, name, writes, 0, false), afterWrites(t, name, writes, time.Hour, false)
			require.Equal(t, each, one)
		})
	}
}

// afterWrites makes writes in one flush if sync is 0, and returns all that the store has then. A store that is opened
// on the file has the same, also after a compaction.
func afterWrites(t *testing.T, name string, writes []func(*Store) error, sync time.Duration, devices bool) string {
	t.Helper()
	everything := func(s *Store) string {
		users := []string{"alice", "bob", "old"}
		return fmt.Sprint(truthOf(t, s), usersWithDetails(t, s), devicesIn(t, s, users...), contactsOf(t, s, "alice"))
	}
	m := &kit.Machine{}
	if devices {
		m.Passed.Set(10 * time.Minute)
	}
	o := optionsOf(t, m)
	o.Sync = sync
	s := open(t, o)
	beforeFlush(t, s, name, devices)
	if sync == 0 {
		inOneFlush(t, s, writes)
		require.NoError(t, s.DeleteNamespace(context.Background(), "held"))
	} else {
		for _, write := range writes {
			require.NoError(t, write(s))
		}
	}
	flushed(t, s)
	result := everything(s)
	for _, restart := range []string{"restarted", "compacted"} {
		live := liveOf(s)
		if restart == "compacted" {
			require.NoError(t, compactNow(s))
		}
		require.NoError(t, s.Close())
		s = open(t, o)
		require.Equal(t, result, everything(s), restart)
		require.InDelta(t, live, liveOf(s), 10)
	}
	return result
}

func devicesOf(namespace string, batch ...store.DeviceEvent) func(*Store) error {
	return func(s *Store) error {
		_, err := s.RecordDevices(context.Background(), namespace, time.Minute, batch)
		return err
	}
}

func leaveOf(user string, at lastseen.Instant) func(*Store) error {
	return func(s *Store) error {
		_, err := s.Leave(context.Background(), "chat", []store.PresenceEvent{{User: user, At: at}})
		return err
	}
}

func forgetOf(user string) func(*Store) error {
	return func(s *Store) error { return s.Forget(context.Background(), "chat", user) }
}

// inOneFlush makes writes to a store with Sync zero, while another flush is in progress: they are the next one.
func inOneFlush(t *testing.T, s *Store, writes []func(*Store) error) {
	t.Helper()
	g := hold(s)
	errs := make(chan error, len(writes)+1)
	go func() { errs <- s.Register(context.Background(), []string{"held"}) }()
	<-g.entered
	for n, write := range writes {
		go func() { errs <- write(s) }()
		require.Eventually(t, func() bool { return len(s.writer.requests) == n+1 }, time.Minute, time.Millisecond)
	}
	close(g.open)
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Len(t, g.entered, 1, "one flush")
}

func sayOf(user string, state lastseen.AvailabilityState) func(*Store) error {
	return sayAtOf(user, state, base)
}

func sayAtOf(user string, state lastseen.AvailabilityState, at lastseen.Instant) func(*Store) error {
	return func(s *Store) error {
		_, err := s.SetAvailability(context.Background(), "chat", user, state, at)
		return err
	}
}

func pingOf(user string, at lastseen.Instant) func(*Store) error {
	return func(s *Store) error {
		_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: user, At: at}})
		return err
	}
}

func flushed(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.writer.Do(context.Background(), memstore.Write{Durable: true}))
}
