package servers

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// OpenPair returns two stores that share all data, as two processes have them. Both are the same store if only one
// process can use the data.
type OpenPair func(t testing.TB) (one, two store.Store)

// RunSignals tests that stores pass signals on. Each subtest opens its own stores.
func RunSignals(t *testing.T, open OpenPair) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, store.Store, store.Store){
		"All":        testSignalsReachAll,
		"Content":    testSignalContent,
		"Order":      testSignalsInOrder,
		"Nothing":    testSignalsKeepNothing,
		"Concurrent": testSignalsConcurrent,
		"Slow":       testSlowListener,
		"Close":      testSignalAfterClose,
	} {
		t.Run(name, func(t *testing.T) {
			one, two := open(t)
			test(t, one, two)
		})
	}
}

// maxSignalWait is how long tests wait for a signal: longer than any machine takes.
const maxSignalWait = 30 * time.Second

// Listener has the signals that it received.
type Listener struct {
	Signals chan store.Signal
	stop    func()
}

// Listen listens to a store until the end of the test. It returns once signals arrive.
func Listen(t *testing.T, s store.Store) Listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h := Listener{Signals: make(chan store.Signal, 10_000)}
	var running sync.WaitGroup
	var busy sync.Mutex
	running.Go(func() {
		s.Listen(ctx, func(signal store.Signal) {
			if !busy.TryLock() {
				t.Error("two calls of receive at the same time")
				return
			}
			defer busy.Unlock()
			h.Signals <- signal
		})
	})
	h.stop = func() { cancel(); running.Wait() }
	t.Cleanup(h.stop)
	require.Zero(t, h.Next(t), "the first signal says that earlier ones were not received")
	return h
}

// Next returns the next signal.
func (h Listener) Next(t *testing.T) store.Signal {
	t.Helper()
	select {
	case s := <-h.Signals:
		return s
	case <-time.After(maxSignalWait):
		t.Fatal("no signal arrives")
		return store.Signal{}
	}
}

func signal(t *testing.T, s store.Store, message store.Signal) {
	t.Helper()
	require.NoError(t, s.Signal(context.Background(), message))
}

// testSignalsReachAll: a signal reaches all listeners of all processes, also that of the sender.
func testSignalsReachAll(t *testing.T, one, two store.Store) {
	listeners := []Listener{Listen(t, one), Listen(t, one), Listen(t, two)}
	for _, from := range []store.Store{one, two} {
		want := store.Signal{Kind: "self", Namespace: kit.Namespace, User: "alice", Data: []byte("x")}
		signal(t, from, want)
		for i, h := range listeners {
			require.Equal(t, want, h.Next(t), i)
		}
	}
}

// testSignalContent: any content arrives as it was sent.
func testSignalContent(t *testing.T, one, two store.Store) {
	h := Listen(t, two)
	all := []store.Signal{
		{Kind: "a", Namespace: "n", User: "u"},
		{Kind: "abcdefghijklmnop", Namespace: "a.b-c_d", User: "u", Data: bytes.Repeat([]byte{0}, store.MaxSignalData)},
		{Kind: "k", Namespace: "n", User: "u", Data: []byte(" 3 \r\n\x00\xff")},
		{Kind: "k", Namespace: "n", Data: []byte("no user")},
	}
	for _, id := range kit.OddIDs() {
		all = append(all, store.Signal{Kind: "k", Namespace: "n", User: id, Data: []byte(id)})
	}
	for _, want := range all {
		data := bytes.Clone(want.Data)
		signal(t, one, store.Signal{Kind: want.Kind, Namespace: want.Namespace, User: want.User, Data: data})
		for i := range data {
			data[i] = '!' // it is not kept
		}
		got := h.Next(t)
		require.Equal(t, want.User, got.User)
		require.True(t, bytes.Equal(want.Data, got.Data), want.User)
		require.Equal(t, want.Kind+want.Namespace, got.Kind+got.Namespace)
	}
}

// testSignalsInOrder: those of one process about one user arrive in order.
func testSignalsInOrder(t *testing.T, one, two store.Store) {
	listeners := []Listener{Listen(t, one), Listen(t, two)}
	for i := range 200 {
		signal(t, one, store.Signal{Kind: "k", Namespace: kit.Namespace, User: "alice", Data: fmt.Append(nil, i)})
	}
	for _, h := range listeners {
		for i := range 200 {
			require.Equal(t, fmt.Sprint(i), string(h.Next(t).Data))
		}
	}
}

// testSignalsKeepNothing: a signal reaches nobody who listens later, and creates nothing.
func testSignalsKeepNothing(t *testing.T, one, two store.Store) {
	signal(t, one, store.Signal{Kind: "early", Namespace: kit.Namespace, User: "alice"})
	first := Listen(t, two)
	first.stop()
	signal(t, one, store.Signal{Kind: "between", Namespace: kit.Namespace, User: "alice"})
	second := Listen(t, two)
	signal(t, one, store.Signal{Kind: "late", Namespace: kit.Namespace, User: "alice"})
	require.Equal(t, "late", second.Next(t).Kind)
	require.Empty(t, first.Signals)
	require.Empty(t, kit.Namespaces(t, one, 10))
}

// testSignalsConcurrent: many senders lose nothing, and receive is called by one at a time.
func testSignalsConcurrent(t *testing.T, one, two store.Store) {
	const senders, each = 8, 50
	h := Listen(t, two)
	var sending sync.WaitGroup
	for n := range senders {
		sending.Go(func() {
			for range each {
				from := []store.Store{one, two}[n%2]
				message := store.Signal{Kind: "k", Namespace: kit.Namespace, User: fmt.Sprint(n)}
				if err := from.Signal(context.Background(), message); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	counts := map[string]int{}
	for range senders * each {
		counts[h.Next(t).User]++
	}
	for n := range senders {
		require.Equal(t, each, counts[fmt.Sprint(n)])
	}
}

// testSlowListener: a listener that is too slow is not waited for, and learns that it lost signals.
func testSlowListener(t *testing.T, one, _ store.Store) {
	const sent = 6000
	ctx, cancel := context.WithCancel(context.Background())
	blocked, let := make(chan struct{}), make(chan struct{})
	got, lost := 0, 0
	done := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		one.Listen(ctx, func(s store.Signal) {
			switch {
			case s.Kind == "" && lost == 0:
				lost++
				close(blocked)
				<-let
			case s.Kind == "":
				lost++
				close(done)
			default:
				got++
			}
		})
	})
	defer listening.Wait()
	defer cancel()
	<-blocked
	for range sent {
		signal(t, one, store.Signal{Kind: "k", Namespace: kit.Namespace, User: "alice"})
	}
	close(let)
	select {
	case <-done:
	case <-time.After(maxSignalWait):
		t.Fatal("it does not learn that signals were lost")
	}
	require.Less(t, got, sent)
}

// testSignalAfterClose: a store that is closed sends nothing, and Listen returns when its context ends.
func testSignalAfterClose(t *testing.T, one, _ store.Store) {
	h := Listen(t, one)
	require.NoError(t, one.Close())
	require.ErrorIs(t, one.Signal(context.Background(), store.Signal{Kind: "k", Namespace: kit.Namespace, User: "a"}),
		store.ErrClosed)
	h.stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	one.Listen(ctx, func(store.Signal) {})
}
