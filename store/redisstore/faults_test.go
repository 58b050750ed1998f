package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestFaultsOnTheWay checks what callers see while the connection to Redis is spoiled: the truth or an error, soon.
func TestFaultsOnTheWay(t *testing.T) {
	type fault struct {
		name, toxic string
		opens       bool
	}
	for _, fault := range testenv.Variants(
		fault{"mid-reply", `{"type":"limit_data","stream":"downstream","attributes":{"bytes":3000}}`, false},
		fault{"silent", `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`, true},
		fault{"reset", `{"type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`, true},
		fault{"1 KB/s", `{"type":"bandwidth","stream":"downstream","attributes":{"rate":1}}`, true},
		fault{"slow", `{"type":"latency","stream":"downstream","attributes":{"latency":60000}}`, true},
	) {
		t.Run(fault.name, func(t *testing.T) { testFault(t, fault.toxic, fault.opens) })
	}
}

func testFault(t *testing.T, toxic string, opens bool) {
	const timeout, callers = 100 * time.Millisecond, 40
	const during = 2 * time.Second // some probes
	server := redistest.StartProcess(t)
	proxy := startProxy(t, server.Addr)
	s := newStore(t, redisstore.Options{URL: "redis://" + proxy.Listen, Timeout: timeout, PoolSize: 8})
	load := newFaultLoad(t, s)
	before := runtime.NumGoroutine()
	heal := spoil(t, proxy, toxic)
	var calling sync.WaitGroup
	for n := range callers {
		calling.Go(func() { load.call(n, during) })
	}
	peak := runtime.NumGoroutine()
	for begun := time.Now(); time.Since(begun) < during; time.Sleep(10 * time.Millisecond) {
		peak = max(peak, runtime.NumGoroutine())
	}
	calling.Wait()
	require.NoError(t, load.wrong())
	require.True(t, !opens || s.Client().BreakersOpened() > 0)
	t.Logf("%d calls, %d of them succeeded; the slowest took %v; %d goroutines, %d before", load.made.Load(),
		load.succeeded.Load(), time.Duration(load.slowest.Load()), peak, before)
	require.Less(t, time.Duration(load.slowest.Load()), 50*timeout, "documented are two timeouts")
	require.Less(t, peak, before+callers+400, "some for each connection, in the proxy too")

	heal()
	closed := []redisclient.Breaker{{Server: proxy.Listen, State: redisclient.BreakerClosed}}
	require.Eventually(t, func() bool {
		return ping(s, "chat", "alice") == nil && slices.Equal(closed, s.Client().Breakers())
	}, longTimeout, time.Millisecond)
	load.requireAll()
}

// faultLoad calls a store that may fail, and remembers what was acknowledged.
type faultLoad struct {
	*testing.T
	s         *redisstore.Store
	users     []string // known, all last seen at base
	made      atomic.Int64
	succeeded atomic.Int64
	slowest   atomic.Int64
	errs      chan error

	mu           sync.Mutex
	acknowledged map[string]lastseen.Instant
}

func newFaultLoad(t *testing.T, s *redisstore.Store) *faultLoad {
	f := &faultLoad{T: t, s: s, errs: make(chan error, 100_000), acknowledged: map[string]lastseen.Instant{}}
	for n := range 500 {
		f.users = append(f.users, fmt.Sprintf("known%d", n))
	}
	untilSuccess(t, func() error { return ping(s, "chat", f.users...) })
	return f
}

// call pings users of its own and looks up known ones.
func (f *faultLoad) call(caller int, during time.Duration) {
	user := fmt.Sprintf("caller%d", caller)
	for n, start := 0, time.Now(); time.Since(start) < during; n++ {
		time.Sleep(5 * time.Millisecond) // refused calls take no time
		f.made.Add(1)
		begun := time.Now()
		call := f.lookup
		if n%2 == 0 {
			call = func() error { return f.ping(user, base+lastseen.Instant(n)) }
		}
		err := call()
		if took := int64(time.Since(begun)); took > f.slowest.Load() {
			f.slowest.Store(took) // two calls at once may lose the slower one
		}
		if err == nil {
			f.succeeded.Add(1)
		} else if !errors.Is(err, store.ErrUnavailable) {
			f.errs <- err
		}
	}
}

func (f *faultLoad) lookup() error {
	states, err := f.s.Lookup(context.Background(), "chat", f.users)
	for _, state := range states {
		if err == nil && state != (lastseen.State{At: base}) {
			return fmt.Errorf("a wrong state: %v", state)
		}
	}
	return err
}

func (f *faultLoad) ping(user string, at lastseen.Instant) error {
	states, err := f.s.Ping(context.Background(), "chat", []store.Sighting{{User: user, At: at}})
	if err != nil {
		return err
	}
	if len(states) != 1 || states[0] != (lastseen.State{At: at}) {
		return fmt.Errorf("a wrong state: %v", states)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acknowledged[user] = at
	return nil
}

func (f *faultLoad) wrong() error {
	select {
	case err := <-f.errs:
		return err
	default:
		return nil
	}
}

// requireAll checks that what was acknowledged is there. A ping that failed may have been recorded, too.
func (f *faultLoad) requireAll() {
	f.Helper()
	for user, at := range f.acknowledged {
		var states []lastseen.State
		untilSuccess(f.T, func() (err error) {
			states, err = f.s.Lookup(context.Background(), "chat", []string{user})
			return err
		})
		require.GreaterOrEqual(f, states[0].At, at)
	}
}

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
			key = chat
		}
		for name, lose := range lose {
			t.Run(key+" "+name, func(t *testing.T) {
				client := newClient(t, url)
				require.NoError(t, client.FlushAll(context.Background()).Err())
				l := &lossTest{T: t, client: client}
				for range 3 {
					l.servers = append(l.servers, newStore(t, redisstore.Options{URL: url}))
				}
				dump := l.prepare(key)
				stop := l.load()
				defer stop()
				l.requireSettled("before")
				pingAt(t, l.servers[2], "late", nowOf(t, l.servers[2]))
				require.Eventually(t, l.follows("late"), longTimeout, time.Millisecond)
				lose(t, client, key, dump)
				bye := onDevice("erin", "tab", nowOf(t, l.servers[1]))
				bye.Gone = true
				record(t, l.servers[1], bye)
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
	old := nowOf(l, s).Add(-time.Minute)
	must(s.Ping(ctx, "chat", sightingsAt(old, all...)))(l.T)
	hash := l.client.Dump(ctx, sidesKey(chat)).Val()
	say(l, s, "alice", lastseen.Said{Note: "x", Until: old.Add(time.Hour)})
	sayAt(l, s, "bob", invisible, old)
	sayAt(l, s, "carol", invisible, old)
	device := onDevice("erin", "tab", old)
	device.Meta = "{}"
	record(l, s, device)
	require.NoError(l, s.RecordChanges(ctx, "chat", brief))
	require.NoError(l, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	dump := l.client.Dump(ctx, key).Val()
	if key == sidesKey(chat) {
		dump = hash
	}
	require.NotEmpty(l, dump)
	sayAt(l, s, "bob", lastseen.Said{}, old+1)
	now := nowOf(l, s)
	must(s.Ping(ctx, "chat", sightingsAt(now, all...)))(l.T)
	device.At, device.Meta = now, ""
	record(l, s, device)
	leaveAt(l, s, now+1, "dave")
	say(l, s, "alice", invisible)
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

// write pings, leaves, says something and sweeps.
func (l *lossTest) write(s *redisstore.Store, i int) error {
	ctx := context.Background()
	now, noClock := s.Now(ctx)
	states, noPing := s.Ping(ctx, "chat", sightingsAt(now, "alice", "carol", "u1", "u2", "u3", "bob"))
	for _, state := range states[:min(2, len(states))] {
		if brief.Presence("", state, now).Status != lastseen.Grey {
			l.Errorf("an invisible user is shown: %v", state)
		}
	}
	_, noDevice := s.RecordDevices(ctx, "chat", window, []store.DeviceSighting{onDevice("erin", "phone", now)})
	_, noLeave := s.Leave(ctx, "chat", sightingsAt(now, "frank"))
	_, notSaid := s.SetAvailability(ctx, "chat", "u1", lastseen.Said{Note: fmt.Sprint(i)}, now)
	sweep := &store.ChangesSweep{Namespace: "chat", Thresholds: brief, Now: now}
	s.SweepChanges(ctx, []*store.ChangesSweep{sweep})
	if errors.Is(sweep.Err, store.ErrNotRecorded) {
		sweep.Err = s.RecordChanges(ctx, "chat", brief)
	}
	return errors.Join(noClock, noPing, noDevice, noLeave, notSaid, sweep.Err)
}

// requireSettled waits until all servers and the follower show the truth.
func (l *lossTest) requireSettled(when string) {
	l.Helper()
	var wrong []string
	require.Eventually(l, func() bool {
		l.follow()
		wrong = nil
		for i, user := range l.follower.users {
			online := i < len(active)
			for _, s := range l.servers {
				state, err := s.Lookup(context.Background(), "chat", []string{user})
				if err != nil || online != (brief.Presence(user, state[0], nowOf(l, s)).Status == lastseen.Green) {
					wrong = append(wrong, fmt.Sprint(user, state, err))
				}
			}
			if told := l.follower.told[user]; online != (told.Status == lastseen.Green) {
				wrong = append(wrong, fmt.Sprint("follower: ", user, told))
			}
		}
		return len(wrong) == 0
	}, longTimeout, 5*time.Millisecond, "%s: %v", when, &wrong)
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
	for more := true; more && f.places != nil; {
		read := f.read()
		if read.Err != nil || read.Reset {
			f.places, f.resets = nil, f.resets+1
			break
		}
		for _, change := range read.Changes {
			f.told[change.User] = change.Published
		}
		f.places, more = read.Places, read.More
	}
	if f.places == nil {
		_ = f.begin() // an error means that the feed is not recorded again yet
	}
	if told := f.told["alice"]; told.Status != lastseen.Grey {
		l.Errorf("the follower shows an invisible user: %+v", told)
	}
}
