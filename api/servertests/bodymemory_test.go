package servertests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestLargestRequestsFit checks that a single caller can send a request of any kind, also with the least memory.
func TestLargestRequestsFit(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy,
		func(c *api.Config) { c.BodyMemory = api.MinBodyMemory; c.Limits = limit.Limits{} })
	user := strings.Repeat("u", 74)
	largest := `{"pings":[` + strings.Repeat(`{"user":"`+user+`","at":9},`, kit.MaxItems-1) + `{"user":"u"}]}`
	require.Greater(t, len(largest), 900<<10)
	w.Post("/chat/pings", largest+strings.Repeat(" ", kit.MaxBody-len(largest)), kit.ForwardedFor("203.0.113.7"))
	onDevices := `{"leaves":[` + strings.Repeat(`{"user":"u","device":{"id":"d"},"after":"60s"},`, kit.MaxItems-1) +
		`{"user":"u"}]}`
	w.Post("/chat/leaves", onDevices+strings.Repeat(" ", kit.MaxBody-len(onDevices)), kit.ForwardedFor("203.0.113.7"))
	lookup := `{"users":[` + strings.Repeat(`"`+strings.Repeat("ü", 128)+`",`, kit.MaxLookup-1) + `"u"]}`
	w.Post("/chat/lookup", lookup+strings.Repeat(" ", kit.MaxLookupBody-len(lookup)), kit.ForwardedFor("203.0.113.7"))
	w.Fails(problem.BodyTooLarge, "POST", "/chat/lookup", lookup+strings.Repeat(" ", kit.MaxLookupBody+1-len(lookup)))
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
	const size = kit.MaxBody - 1
	const fit = api.DefaultBodyMemory / 4 / kit.MaxBody // what an address can have at the same time
	bodies := testenv.Choose(700, 3*fit)
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy, func(c *api.Config) { c.Limits = limit.Limits{} })
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
			r.ContentLength, r.RemoteAddr = kit.MaxBody, "127.0.0.1:1"
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
		requireHeapBelow(t, before+uint64(n+1)*api.DefaultBodyMemory/4+16<<20)
	}
	w.Post("/chat/pings", `{"pings":[{"user":"alice"}]}`, kit.ForwardedFor("203.0.113.9"))
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
	refusal := w.Fails(problem.Overloaded, "POST", "/chat/pings", strings.Repeat(" ", kit.MaxBody), kit.ForwardedFor("203.0.113.12"))
	require.NotContains(t, refusal["detail"], "203")
	requireHeapBelow(t, before+api.DefaultBodyMemory+16<<20)
}

// requireHeapBelow waits until the heap is small enough: a request releases its body shortly after its status is
// sent.
func requireHeapBelow(t *testing.T, limit uint64) {
	t.Helper()
	kit.Await(t, func() bool { return heap() < limit }, "%d bytes", limit)
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

// TestDecodedMemory checks that requests whose decoded bodies wait for the store use no more memory than is counted.
func TestDecodedMemory(t *testing.T) {
	requests := testenv.Choose(20, 5)
	list := func(name, item string, n int, last string) string {
		return `{"` + name + `":[` + strings.Repeat(item+",", n-1) + last + `]}`
	}
	for path, body := range map[string]string{
		"POST pings": list("pings", `{"user":"%[1]d-0123456789","at":1795176000.123}`, kit.MaxItems, `{"user":"u"}`),
		"POST pings?devices": list("pings", `{"user":"%[1]d-0123456789","device":{"id":"01234567"}}`, kit.MaxItems,
			`{"user":"u","device":{"id":"d"}}`),
		"POST pings?meta": list("pings",
			`{"user":"%[1]d","at":1795176000.123,"device":{"id":"d","meta":{"a":"0123456789"}},"activity":"idle"}`,
			kit.MaxItems, `{"user":"u","device":{"id":"d"}}`),
		"POST leaves":              list("leaves", `{"user":"u"}`, kit.MaxItems, `{"user":"%[1]d"}`),
		"POST lookup":              list("users", `"%[1]d-0123456789"`, kit.MaxLookup, `"u"`),
		"PUT users/alice/contacts": list("users", `"%[1]d-0123456789"`, store.MaxContacts, `"u"`),
	} {
		t.Run(path, func(t *testing.T) {
			s, asked, let := kit.BlockingStore(t, "Ping", "Leave", "RecordDevices", "Describe", "SetContacts")
			registry := prometheus.NewRegistry()
			w := apitest.NewServer(t, s, func(c *api.Config) { c.BodyMemory, c.Metrics = 1<<30, registry })
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
			taken := int64(heap() - before)
			counted := kit.Samples(t, registry, "lastseen_body_memory_bytes")[""]
			t.Logf("%d KiB are taken, %d KiB are counted", taken>>10, int(counted)>>10)
			require.Less(t, float64(taken), counted)
			close(let)
			all.Wait()
			runtime.KeepAlive(prepared) // or they would be counted as given back
			require.Empty(t, kit.Samples(t, registry, "lastseen_body_memory_bytes"))
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
