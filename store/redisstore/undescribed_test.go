package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestUndescribedModel: whatever servers remember of users without details, each lookup returns the details that Redis
// has at that moment, also if it was replaced by an older state of it.
func TestUndescribedModel(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for _, shards := range []int{1, 2} {
		o := redisstore.Options{URL: url, Shards: shards}
		servers := []*redisstore.Store{newStore(t, o), newStore(t, o)}
		for _, s := range servers {
			s.SettleAtOnce()
		}
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, servers[0].DeleteNamespace(ctx, "chat"))
			m := &undescribedModel{T: t, servers: servers, client: client}
			say(t, m.server(), "u00000", inMeeting)
			m.keep(t)
			t.Repeat(map[string]func(*rapid.T){
				"say": m.say, "idle": m.idle, "in call": m.inCall, "leave": m.leave, "invisible": m.invisible,
				"forget": m.forget, "trim": m.trim, "delete": m.delete, "keep": m.keep, "restore": m.restore,
				"": m.compare,
			})
		})
		require.NoError(t, servers[0].DeleteNamespace(ctx, "chat"))
	}
}

// undescribedModel writes through two servers.
type undescribedModel struct {
	*rapid.T
	servers []*redisstore.Store
	client  *redis.Client
	kept    map[string]string // older values of keys
}

// server returns one of the servers. It reads the bit of details again, which the other one may have set or deleted.
func (m *undescribedModel) server() *redisstore.Store {
	s := rapid.SampledFrom(m.servers).Draw(m.T, "server")
	s.ExpireAgreements()
	return s
}

func (m *undescribedModel) user() string  { return rapid.SampledFrom(m.users()).Draw(m.T, "user") }
func (*undescribedModel) users() []string { return numbered("u", 12) }

func (m *undescribedModel) say(t *rapid.T) {
	s := m.server()
	soon := lastseen.Said{Note: "x", Until: nowOf(t, s) + 1} // a later call deletes it
	say(t, s, m.user(), rapid.SampledFrom([]lastseen.Said{{}, {}, inMeeting, soon}).Draw(t, "said"))
}

func (m *undescribedModel) idle(t *rapid.T) {
	s := m.server()
	now := nowOf(t, s)
	var batch []store.DeviceSighting
	for range rapid.IntRange(1, 4).Draw(t, "devices") {
		item := onDevice(m.user(), "tab", now)
		item.Idle = rapid.SampledFrom([]lastseen.Instant{0, now - 5}).Draw(t, "since")
		batch = append(batch, item)
	}
	record(t, s, batch...)
}

func (m *undescribedModel) inCall(t *rapid.T) {
	s := m.server()
	until := rapid.SampledFrom([]lastseen.Instant{0, nowOf(t, s).Add(time.Hour)}).Draw(t, "until")
	require.NoError(t, s.SetInCalls(context.Background(), "chat", []store.InCall{{User: m.user(), Until: until}}))
}

func (m *undescribedModel) leave(t *rapid.T) {
	s := m.server()
	_, err := s.Leave(context.Background(), "chat", []store.Sighting{{User: m.user(), At: nowOf(t, s)}})
	require.NoError(t, err)
}

func (m *undescribedModel) invisible(t *rapid.T) { say(t, m.server(), m.user(), invisible) }

func (m *undescribedModel) forget(t *rapid.T) {
	require.NoError(t, m.server().Forget(context.Background(), "chat", m.user()))
}

// trim deletes all users, whose devices are no longer idle then.
func (m *undescribedModel) trim(t *rapid.T) {
	s := m.server()
	_, err := s.Trim(context.Background(), "chat", store.TrimQuery{Age: -time.Hour, Now: nowOf(t, s), All: true})
	require.NoError(t, err)
}

func (m *undescribedModel) delete(t *rapid.T) {
	require.NoError(t, m.server().DeleteNamespace(context.Background(), "chat"))
}

func (m *undescribedModel) keys() []string {
	keys, err := m.client.Keys(context.Background(), "presence:details:*").Result()
	require.NoError(m, err)
	return keys
}

// keep remembers the details as they are, for restore.
func (m *undescribedModel) keep(t *rapid.T) {
	m.kept = map[string]string{}
	for _, key := range m.keys() {
		dump, err := m.client.Dump(context.Background(), key).Result()
		require.NoError(t, err)
		m.kept[key] = dump
	}
}

// restore loses what has changed since keep, as a replica does that becomes the primary too early.
func (m *undescribedModel) restore(t *rapid.T) {
	ctx := context.Background()
	if m.client.HExists(ctx, "presence::meta", "chat:details").Val() {
		for _, key := range m.keys() {
			require.NoError(t, m.client.Del(ctx, key).Err())
		}
		for key, dump := range m.kept {
			require.NoError(t, m.client.RestoreReplace(ctx, key, 0, dump).Err())
		}
	}
}

func (m *undescribedModel) compare(t *rapid.T) {
	ctx := context.Background()
	var want []string
	for _, key := range m.keys() {
		fields, err := m.client.HKeys(ctx, key).Result()
		require.NoError(t, err)
		want = append(want, slices.DeleteFunc(fields, func(field string) bool { return field == "" })...)
	}
	slices.Sort(want)
	_, details, err := m.server().Describe(ctx, "chat", m.users())
	require.NoError(t, err)
	require.Equal(t, want, slices.Sorted(maps.Keys(details)))
}

// askedOf counts the users whose details are asked for in lookups of a store.
type askedOf struct {
	commands, users atomic.Int64
}

func (*askedOf) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*askedOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a *askedOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "hmget" {
				a.commands.Add(1)
				a.users.Add(int64(len(cmd.Args()) - 3)) // the name, the key and the versions
			}
		}
		return next(ctx, cmds)
	}
}

// describe looks users up, and returns how many commands asked for details, of how many users.
func (a *askedOf) describe(t *testing.T, s store.Store, users []string) (commands, asked int64) {
	t.Helper()
	a.commands.Store(0)
	a.users.Store(0)
	_, _, err := s.Describe(context.Background(), "chat", users)
	require.NoError(t, err)
	return a.commands.Load(), a.users.Load()
}

// TestUndescribedAreNotAskedFor: lookups ask Redis for users who have details, and for others once. After a user gets
// details or loses them, they ask in a second round trip for others of the user's group once more.
func TestUndescribedAreNotAskedFor(t *testing.T) {
	t.Parallel()
	var elapsed atomic.Int64
	url := redistest.Start(t)
	other := newStore(t, redisstore.Options{URL: url})
	monotonic := func() time.Duration { return time.Duration(elapsed.Load()) }
	s := newStore(t, redisstore.Options{URL: url, Monotonic: monotonic})
	var a askedOf
	s.AddHook(&a)
	users := numbered("u", 320)
	require.NoError(t, ping(s, "chat", users...))
	for i := range 32 {
		say(t, other, users[10*i], inMeeting)
	}
	s.ExpireAgreements()
	require := require.New(t)
	expect := func(commands, asked int64, why string) {
		t.Helper()
		c, n := a.describe(t, s, users)
		require.Equal([]int64{commands, asked}, []int64{c, n}, why)
	}
	expect(1, 320, "nothing is known")
	expect(1, 32, "those who have details")

	inGroup := 0
	for i, user := range users {
		if i%10 != 0 && redisstore.GroupOf(user) == redisstore.GroupOf(users[1]) {
			inGroup++
		}
	}
	require.Greater(inGroup, 1)
	say(t, other, users[1], inMeeting)
	expect(2, int64(32+inGroup), "the group has changed")
	expect(1, 33, "it is known again")
	say(t, other, users[1], lastseen.Said{Note: "another"})
	expect(1, 33, "another text changes nothing")
	say(t, other, users[1], lastseen.Said{})
	expect(2, int64(33+inGroup-1), "the group has changed back")
	expect(1, 32, "and is known")

	described := users[0]
	for i := 10; redisstore.GroupOf(described) == redisstore.GroupOf(users[1]); i += 10 {
		described = users[i]
	}
	ctx, until := context.Background(), nowOf(t, s).Add(time.Hour)
	in := []store.InCall{{User: described, Until: until}, {User: users[1], Until: until}}
	require.NoError(other.SetInCalls(ctx, "chat", in))
	expect(2, int64(32+inGroup), "that of the user who got details, not that of another one in the same call")
	require.NoError(other.SetInCalls(ctx, "chat", []store.InCall{{User: described}, {User: users[1]}}))
	expect(2, int64(33+inGroup-1), "and lost them")
	expect(1, 32, "both are known")

	elapsed.Store(int64(10*time.Minute - 1))
	expect(1, 32, "for 10 minutes")
	say(t, other, users[0], lastseen.Said{})
	say(t, other, users[0], inMeeting)
	a.describe(t, s, users)
	expect(1, 32, "what changed meanwhile, too")
	elapsed.Add(1)
	expect(1, 320, "then all are asked for")
	expect(1, 32, "once")

	for i := range 32 {
		say(t, other, users[10*i], lastseen.Said{})
	}
	expect(2, 320, "nobody has details, so there are no versions")
	expect(1, 320, "nothing is remembered")
	say(t, other, users[0], inMeeting)
	expect(1, 320, "there are versions again")
	expect(1, 1, "what is remembered from now on")

	until = nowOf(t, other) + 1
	sayAt(t, other, users[1], lastseen.Said{Note: "soon over", Until: until}, until-1)
	a.describe(t, s, users)
	require.Eventually(func() bool { // the clock of Redis can be behind
		say(t, other, users[0], inMeeting) // deletes what ended
		commands, _ := a.describe(t, s, users)
		return commands == 2
	}, longTimeout, time.Millisecond, "what ended is deleted")
	expect(1, 1, "and not asked for again")

	records := []store.Record{{User: users[0]}, {User: users[1]}, {User: users[2]}}
	a.users.Store(0)
	details, err := s.ReadDetails(ctx, "chat", records)
	require.NoError(err)
	require.Equal(map[string]store.Details{users[0]: {Said: inMeeting}}, details)
	require.EqualValues(1, a.users.Load(), "pages of lists do the same")
	say(t, other, users[2], inMeeting)
	details, err = s.ReadDetails(ctx, "chat", records)
	require.NoError(err)
	require.Len(details, 2)
}

// TestUndescribedRace: while others look up and write, a user's details are in the next lookup by any server.
func TestUndescribedRace(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	o := redisstore.Options{URL: url, Shards: 2}
	servers := []*redisstore.Store{newStore(t, o), newStore(t, o)}
	users := numbered("u", 60) // of whom many share a group
	require.NoError(t, ping(servers[0], "chat", users...))
	say(t, servers[0], users[0], inMeeting)
	for _, s := range servers {
		s.ExpireAgreements()
	}
	ctx, stop := context.WithCancel(context.Background())
	var readers, writers sync.WaitGroup
	for _, s := range servers {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, _, err := s.Describe(context.WithoutCancel(ctx), "chat", users)
				assert.NoError(t, err)
			}
		})
	}
	rounds := testenv.Choose(100, 20)
	for i := range 6 {
		writers.Go(func() { toggle(t, servers[i%2], servers[(i/2)%2], users[10*i:10*i+10], rounds) })
	}
	writers.Wait()
	stop()
	readers.Wait()
}

// toggle has users say something, one after the other, and then nothing, as often as that.
func toggle(t *testing.T, writer, reader store.Store, users []string, rounds int) {
	ctx := context.Background()
	for round := range rounds {
		user := users[round%len(users)]
		for _, said := range []lastseen.Said{{Note: fmt.Sprint(round)}, {}} {
			_, err := writer.SetAvailability(ctx, "chat", user, said, base)
			_, details, failed := reader.Describe(ctx, "chat", users)
			if err != nil || failed != nil || details[user].Said != said {
				t.Errorf("%s says %q, but %v is read: %v %v", user, said.Note, details, err, failed)
				return
			}
		}
	}
}

// TestUndescribedAfterCrash: a Redis that starts again with an older state has what was deleted since.
func TestUndescribedAfterCrash(t *testing.T) {
	t.Parallel()
	ctx, p := context.Background(), redistest.StartProcess(t, "--appendonly", "no")
	s := newStore(t, redisstore.Options{URL: p.URL()})
	require.NoError(t, ping(s, "chat", "alice", "bob"))
	say(t, s, "alice", inMeeting)
	say(t, s, "bob", inMeeting)
	require.Equal(t, inMeeting, described(t, s, "bob").Said)
	require.NoError(t, p.Client(t).Save(ctx).Err())
	say(t, s, "bob", lastseen.Said{})
	require.Zero(t, described(t, s, "bob"))
	require.Zero(t, described(t, s, "bob"))
	p.Stop(t)
	p.Start(t)
	require.Eventually(t, func() bool { return s.Ready(ctx) == nil }, longTimeout, time.Millisecond)
	require.Equal(t, inMeeting, described(t, s, "bob").Said)
}
