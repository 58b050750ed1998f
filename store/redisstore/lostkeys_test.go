package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// brief are thresholds for tests that wait for users to turn grey.
var brief = lastseen.Thresholds{Green: 300 * time.Millisecond, Yellow: 400 * time.Millisecond}

// TestLostKeys: Redis loses one key of a shard, or an operator restores an older one, while three servers write. No
// invisible user is shown, and all statuses are soon right again, also those that a follower shows.
func TestLostKeys(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, kind := range []string{
		"", "keys", "hidden", "private", "feed", "changes", "devices", "devicemeta", "details", "ends", "contacts",
		"contactuses",
	} {
		key := "presence:" + kind + ":{presence:chat}"
		if kind == "" {
			key = stores.Chat
		}
		for name, lose := range lose {
			t.Run(key+" "+name, func(t *testing.T) {
				client := stores.NewClient(t, url)
				require.NoError(t, client.FlushAll(context.Background()).Err())
				l := &lossTest{T: t, client: client}
				for range 3 {
					l.servers = append(l.servers, stores.New(t, redisstore.Options{URL: url}))
				}
				dump := l.prepare(key)
				stop := l.load()
				defer stop()
				l.requireSettled("before")
				kit.Ping(t, l.servers[2], "late", kit.Now(t, l.servers[2]))
				stores.Eventually(t, l.follows("late"))
				lose(t, client, key, dump)
				bye := stores.OnDevice("erin", "tab", kit.Now(t, l.servers[1]))
				bye.Gone = true
				stores.Record(t, l.servers[1], bye)
				l.requireSettled("after")
				if kind == "" || kind == "feed" {
					require.NotZero(t, l.follower.resets)
				}
			})
		}
	}
}

// lossTest is a namespace on several servers.
type lossTest struct {
	*testing.T
	client   redis.UniversalClient
	servers  []*redisstore.Store
	follower *reader
}

// active are users who are online, others are not: alice is invisible, dave left, and late pings once before the loss.
var active, others = []string{"u1", "u2", "u3", "bob", "erin"}, []string{"alice", "dave", "late"}

// prepare writes what there is before a loss, and returns an older dump of a key: of the hash, before there are side
// keys, and of other keys, from when all users were seen long ago, alice was visible and bob was not.
func (l *lossTest) prepare(key string) string {
	ctx, s := context.Background(), l.servers[0]
	all := slices.Concat(active, others)
	old := kit.Now(l, s).Add(-time.Minute)
	must(s.Ping(ctx, "chat", kit.Events(old, all...)))(l.T)
	hash := l.client.Dump(ctx, sidesKey(stores.Chat)).Val()
	availability.Set(l, s, "alice", lastseen.AvailabilityState{Note: "x", Until: old.Add(time.Hour)})
	availability.SetAt(l, s, "bob", availability.Invisible, old)
	availability.SetAt(l, s, "carol", availability.Invisible, old)
	device := stores.OnDevice("erin", "tab", old)
	device.Meta = "{}"
	stores.Record(l, s, device)
	require.NoError(l, s.RecordChanges(ctx, "chat", brief))
	require.NoError(l, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	dump := l.client.Dump(ctx, key).Val()
	if key == sidesKey(stores.Chat) {
		dump = hash
	}
	require.NotEmpty(l, dump)
	availability.SetAt(l, s, "bob", lastseen.AvailabilityState{}, old+1)
	now := kit.Now(l, s)
	must(s.Ping(ctx, "chat", kit.Events(now, all...)))(l.T)
	device.At, device.Meta = now, ""
	stores.Record(l, s, device)
	kit.Leave(l, s, "dave", now+1)
	availability.Set(l, s, "alice", availability.Invisible)
	l.follower = newReader(l.T, s, all...)
	return dump
}

// load has all servers write until the returned function is called.
func (l *lossTest) load() (stop func()) {
	var wait sync.WaitGroup
	var stopped atomic.Bool
	for _, s := range l.servers {
		wait.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				if err := l.write(s, i); err != nil {
					l.Errorf("under load: %v", err)
					return
				}
				time.Sleep(5 * time.Millisecond) // a pace: tests beside this one need the processor too
			}
		})
	}
	return func() {
		stopped.Store(true)
		wait.Wait()
	}
}

// write pings, leaves, sets an availability and advances.
func (l *lossTest) write(s *redisstore.Store, i int) error {
	ctx := context.Background()
	now, noClock := s.Now(ctx)
	states, noPing := s.Ping(ctx, "chat", kit.Events(now, "alice", "carol", "u1", "u2", "u3", "bob"))
	for _, state := range states[:min(2, len(states))] {
		if brief.Presence("", state, now).Status != lastseen.Grey {
			l.Errorf("an invisible user is shown: %v", state)
		}
	}
	erin := stores.OnDevice("erin", "phone", now)
	_, noDevice := s.RecordDevices(ctx, "chat", stores.Window, []store.DeviceEvent{erin})
	_, noLeave := s.Leave(ctx, "chat", kit.Events(now, "frank"))
	_, noAvailability := s.SetAvailability(ctx, "chat", "u1", lastseen.AvailabilityState{Note: fmt.Sprint(i)}, now)
	advance := &store.ChangesAdvance{Namespace: "chat", Thresholds: brief, Now: now}
	s.AdvanceChanges(ctx, []*store.ChangesAdvance{advance})
	if errors.Is(advance.Err, store.ErrNotRecorded) {
		advance.Err = s.RecordChanges(ctx, "chat", brief)
	}
	return errors.Join(noClock, noPing, noDevice, noLeave, noAvailability, advance.Err)
}

// requireSettled waits until all servers and the follower show the truth.
func (l *lossTest) requireSettled(when string) {
	l.Helper()
	var wrong []string
	stores.Eventually(l, func() bool {
		l.follow()
		wrong = nil
		for i, user := range l.follower.users {
			online := i < len(active)
			for _, s := range l.servers {
				state, _, err := s.Describe(context.Background(), "chat", []string{user})
				if err != nil || online != (brief.Presence(user, state[0], kit.Now(l, s)).Status == lastseen.Green) {
					wrong = append(wrong, fmt.Sprint(user, state, err))
				}
			}
			if told := l.follower.told[user]; online != (told.Status == lastseen.Green) {
				wrong = append(wrong, fmt.Sprint("follower: ", user, told))
			}
		}
		return len(wrong) == 0
	}, "%s: %v", when, &wrong)
}

// follows reports whether the follower shows that a user is online.
func (l *lossTest) follows(user string) func() bool {
	return func() bool {
		l.follow()
		return l.follower.told[user].Status == lastseen.Green
	}
}

// follow reads the feed to its end. Unlike the poll of a reader, it does not compare: a lost key is a gap.
func (l *lossTest) follow() {
	f := l.follower
	for more := true; more && f.positions != nil; {
		read := f.read()
		if read.Err != nil || read.Reset {
			f.positions, f.resets = nil, f.resets+1
			break
		}
		for _, change := range read.Changes {
			f.told[change.User] = change.Published
		}
		f.positions, more = read.Positions, read.More
	}
	if f.positions == nil {
		_ = f.begin() // an error means that the feed is not recorded again yet
	}
	if told := f.told["alice"]; told.Status != lastseen.Grey {
		l.Errorf("the follower shows an invisible user: %+v", told)
	}
}
