package topologies

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

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
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
	proxy := stores.StartProxy(t, server.Addr)
	s := stores.New(t, redisstore.Options{URL: "redis://" + proxy.Listen, Timeout: timeout, PoolSize: 8})
	load := newFaultLoad(t, s)
	before := runtime.NumGoroutine()
	heal := stores.Spoil(t, proxy, toxic)
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
	stores.Eventually(t, func() bool {
		return stores.Ping(s, "chat", "alice") == nil && slices.Equal(closed, s.Client().Breakers())
	})
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
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", f.users...) })
	return f
}

// call pings its own users and looks up known ones.
func (f *faultLoad) call(caller int, during time.Duration) {
	user := fmt.Sprintf("caller%d", caller)
	for n, start := 0, time.Now(); time.Since(start) < during; n++ {
		time.Sleep(5 * time.Millisecond) // refused calls take no time
		f.made.Add(1)
		begun := time.Now()
		call := f.lookup
		if n%2 == 0 {
			call = func() error { return f.ping(user, kit.Base+lastseen.Instant(n)) }
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
	states, _, err := f.s.Describe(context.Background(), "chat", f.users)
	for _, state := range states {
		if err == nil && state != (lastseen.State{At: kit.Base}) {
			return fmt.Errorf("a wrong state: %v", state)
		}
	}
	return err
}

func (f *faultLoad) ping(user string, at lastseen.Instant) error {
	states, err := f.s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: user, At: at}})
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
		stores.UntilSuccess(f.T, func() (err error) {
			states, _, err = f.s.Describe(context.Background(), "chat", []string{user})
			return err
		})
		require.GreaterOrEqual(f, states[0].At, at)
	}
}
