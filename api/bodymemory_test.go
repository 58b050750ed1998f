package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestBodyMemory checks that no limit is exceeded, whatever callers take and release, and that a request that fits
// is accepted.
func TestBodyMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = MinBodyMemory
		m := newBodyMemory(total)
		callers := []limit.Key{
			limit.ByAPIKey("a"), limit.ByAPIKey("b"), limit.ByUser("i", "a"), limit.ByUser("i", "b"),
			{Policy: limit.PerAddress},
		}
		holds := make([]bodyHold, 20)
		for i := range holds {
			holds[i] = bodyHold{memory: m, key: callers[i%len(callers)], shared: i != 4}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			h := &holds[rapid.IntRange(0, len(holds)-1).Draw(t, "hold")]
			switch n := rapid.IntRange(1, 4<<20).Draw(t, "bytes"); {
			case rapid.IntRange(0, 3).Draw(t, "what") == 0:
				h.release()
			default:
				used, shares, keyless := usage(holds)
				fits := used+int64(n) <= total && (h.key.Policy == limit.PerKey || keyless+int64(n) <= total*3/4) &&
					(!h.shared || shares[h.key]+int64(n) <= m.share(h.key.Policy))
				require.Equal(t, fits, h.grow(n) == nil)
			}
			used, shares, keyless := usage(holds)
			require.Equal(t, used, m.used)
			require.Equal(t, keyless, m.keyless)
			require.Equal(t, shares, m.callers)
		}
		for i := range holds {
			holds[i].release()
		}
		require.Zero(t, m.used+m.keyless)
		require.Empty(t, m.callers, "it does not grow with callers that come and go")
	})
}

// usage adds up what is held.
func usage(holds []bodyHold) (used int64, shares map[limit.Key]int64, keyless int64) {
	shares = map[limit.Key]int64{}
	for _, h := range holds {
		used += h.bytes
		if h.shared && h.bytes > 0 {
			shares[h.key] += h.bytes
		}
		if h.key.Policy != limit.PerKey {
			keyless += h.bytes
		}
	}
	return used, shares, keyless
}

// TestLargestRequestsFit checks that a single caller can send a request of any kind, also with the least memory.
func TestLargestRequestsFit(t *testing.T) {
	m := newBodyMemory(MinBodyMemory)
	require.LessOrEqual(t, 2*maxBody+itemMemory.bytes*itemMemory.max, int(m.share(limit.PerKey)))
	require.LessOrEqual(t, 2*maxBody+itemMemory.bytes*itemMemory.max, int(m.share(limit.PerAddress)))
	require.LessOrEqual(t, 2*maxLookupBody+lookupMemory.bytes*maxLookup, int(m.share(limit.PerUser)))
	require.LessOrEqual(t, 2*maxLookupBody+contactMemory.bytes*store.MaxContacts, int(m.share(limit.PerUser)))
	w := newTestServer(t, fileStore(t), behindProxy,
		func(c *Config) { c.BodyMemory = MinBodyMemory; c.Limits = limit.Limits{} })
	user := strings.Repeat("u", 74)
	largest := `{"pings":[` + strings.Repeat(`{"user":"`+user+`","at":9},`, maxItems-1) + `{"user":"u"}]}`
	require.Greater(t, len(largest), 900<<10)
	w.post("/chat/pings", largest+strings.Repeat(" ", maxBody-len(largest)), from("203.0.113.7"))
	onDevices := `{"leaves":[` + strings.Repeat(`{"user":"u","device":{"id":"d"},"after":"60s"},`, maxItems-1) +
		`{"user":"u"}]}`
	w.post("/chat/leaves", onDevices+strings.Repeat(" ", maxBody-len(onDevices)), from("203.0.113.7"))
	lookup := `{"users":[` + strings.Repeat(`"`+strings.Repeat("ü", 128)+`",`, maxLookup-1) + `"u"]}`
	w.post("/chat/lookup", lookup+strings.Repeat(" ", maxLookupBody-len(lookup)), from("203.0.113.7"))
	w.fails(problem.BodyTooLarge, "POST", "/chat/lookup", lookup+strings.Repeat(" ", maxLookupBody+1-len(lookup)))
}

// TestNullItemsCount checks that a null item counts as much memory as any other.
func TestNullItemsCount(t *testing.T) {
	require.GreaterOrEqual(t, itemMemory.of([]byte(`{"pings":[null,null,null]}`)), 3*itemMemory.bytes)
	require.GreaterOrEqual(t, lookupMemory.of([]byte(`{"users":[null,null,null]}`)), 3*lookupMemory.bytes)
	require.GreaterOrEqual(t, contactMemory.of([]byte(`{"users":[null,null,null]}`)), 3*contactMemory.bytes)
}

// stalledBody is the body of a request that does not end before the test does.
type stalledBody struct {
	io.Reader
	arrived func() // called when all but the end has arrived
	end     <-chan struct{}
}

func (s stalledBody) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != io.EOF {
		return n, err
	}
	s.arrived()
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// TestStalledBodies checks that hundreds of bodies that arrived except for their end use no more memory than the limit
// for bodies, and that the others are refused. Meanwhile, another caller gets a response.
func TestStalledBodies(t *testing.T) {
	const size = maxBody - 1
	fit := int(newBodyMemory(DefaultBodyMemory).share(limit.PerAddress) / maxBody)
	bodies := testenv.Choose(700, 3*fit)
	w := newTestServer(t, fileStore(t), behindProxy, func(c *Config) { c.Limits = limit.Limits{} })
	end := make(chan struct{})
	var all sync.WaitGroup
	defer func() {
		close(end)
		all.Wait()
	}()
	fates := make(chan int, 5*bodies) // of each body the status if it is refused, zero if it is held
	send := func(caller string, n int) {
		for range n {
			var once sync.Once // what is refused is read to its end, too
			decide := func(fate int) { once.Do(func() { fates <- fate }) }
			r := httptest.NewRequest("POST", "http://localhost/v1/namespaces/chat/pings",
				stalledBody{io.LimitReader(endlessSpaces{}, size), func() { decide(0) }, end})
			r.ContentLength, r.RemoteAddr = maxBody, "127.0.0.1:1"
			r.Header.Set(echo.HeaderXForwardedFor, caller)
			all.Go(func() { w.ServeHTTP(&statusNotifier{httptest.NewRecorder(), decide}, r) })
		}
	}
	before := heap()
	for n, caller := range []string{"203.0.113.7", "203.0.113.8"} {
		send(caller, bodies)
		held := 0
		for range bodies {
			if fate := <-fates; fate == 0 {
				held++
			} else {
				require.Equal(t, http.StatusTooManyRequests, fate)
			}
		}
		require.LessOrEqual(t, held, fit)
		requireHeapBelow(t, before+uint64(n+1)*DefaultBodyMemory/4+16<<20)
	}
	w.post("/chat/pings", `{"pings":[{"user":"alice"}]}`, from("203.0.113.9"))
	for _, caller := range []string{"203.0.113.10", "203.0.113.11"} {
		send(caller, bodies)
	}
	for range 2 * bodies {
		<-fates
	}
	// Bodies that grow at the same time may refuse each other and leave room. One after the other they fill it.
	for n, fate := 0, 0; fate == 0; n++ {
		send(fmt.Sprintf("203.0.114.%d", n), 1)
		if fate = <-fates; fate != 0 {
			require.Equal(t, http.StatusServiceUnavailable, fate)
		}
	}
	refusal := w.fails(problem.Overloaded, "POST", "/chat/pings", strings.Repeat(" ", maxBody), from("203.0.113.12"))
	require.NotContains(t, refusal["detail"], "203")
	requireHeapBelow(t, before+DefaultBodyMemory+16<<20)
}

// requireHeapBelow waits until the heap is small enough: a request releases its body shortly after its status is
// sent.
func requireHeapBelow(t *testing.T, limit uint64) {
	t.Helper()
	await(t, func() bool { return heap() < limit }, "%d bytes", limit)
}

// statusNotifier is a response that reports its status as soon as it is known.
type statusNotifier struct {
	*httptest.ResponseRecorder
	status func(int)
}

// WriteHeader is that of an [http.ResponseWriter].
func (n *statusNotifier) WriteHeader(status int) {
	n.ResponseRecorder.WriteHeader(status)
	n.status(status)
}

// blockingStore returns a store of which some calls report that they were made, and wait until the test lets them.
func blockingStore(t *testing.T, calls ...string) (s store.Store, asked, let chan struct{}) {
	asked, let = make(chan struct{}), make(chan struct{})
	return &hookedStore{Store: fileStore(t), before: func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			asked <- struct{}{}
			<-let
		}
		return nil
	}}, asked, let
}

// withBodies sets the memory that counts the server's bodies.
func withBodies(c *Config, memory *bodyMemory) {
	c.Shared = NewShared(*c)
	c.Shared.bodies = memory
}

// TestDecodedMemory checks that requests whose decoded bodies wait for the store use no more memory than is counted.
func TestDecodedMemory(t *testing.T) {
	requests := testenv.Choose(20, 5)
	list := func(name, item string, n int, last string) string {
		return `{"` + name + `":[` + strings.Repeat(item+",", n-1) + last + `]}`
	}
	for path, body := range map[string]string{
		"POST pings": list("pings", `{"user":"%[1]d-0123456789","at":1795176000.123}`, maxItems, `{"user":"u"}`),
		"POST pings?devices": list("pings", `{"user":"%[1]d-0123456789","device":{"id":"01234567"}}`, maxItems,
			`{"user":"u","device":{"id":"d"}}`),
		"POST pings?meta": list("pings",
			`{"user":"%[1]d","at":1795176000.123,"device":{"id":"d","meta":{"a":"0123456789"}},"activity":"idle"}`,
			maxItems, `{"user":"u","device":{"id":"d"}}`),
		"POST leaves":              list("leaves", `{"user":"u"}`, maxItems, `{"user":"%[1]d"}`),
		"POST lookup":              list("users", `"%[1]d-0123456789"`, maxLookup, `"u"`),
		"PUT users/alice/contacts": list("users", `"%[1]d-0123456789"`, store.MaxContacts, `"u"`),
	} {
		t.Run(path, func(t *testing.T) {
			s, asked, let := blockingStore(t, "Ping", "Leave", "RecordDevices", "Describe", "SetContacts")
			memory := newBodyMemory(1 << 30)
			w := newTestServer(t, s, func(c *Config) { withBodies(c, memory) })
			method, endpoint, _ := strings.Cut(path, " ")
			endpoint, _, _ = strings.Cut(endpoint, "?")
			var prepared []*http.Request
			for i := range requests {
				prepared = append(prepared, httptest.NewRequest(method,
					"http://localhost/v1/namespaces/chat/"+endpoint, strings.NewReader(fmt.Sprintf(body, i))))
			}
			heap() // what pools keep goes with the second collection
			before := heap()
			var all sync.WaitGroup
			for _, r := range prepared {
				all.Go(func() { w.ServeHTTP(httptest.NewRecorder(), r) })
				<-asked
			}
			taken, counted := heap()-before, memory.used
			t.Logf("%d KiB are taken, %d KiB are counted", taken>>10, counted>>10)
			require.Less(t, int64(taken), counted)
			close(let)
			all.Wait()
			runtime.KeepAlive(prepared) // or they would be counted as given back
			require.Zero(t, memory.used)
		})
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
