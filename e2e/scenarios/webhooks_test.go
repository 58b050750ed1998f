package scenarios

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/docs"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

// receiver is what a webhook delivers to. It knows users as the guide says that receivers do, and refuses every fifth
// request.
type receiver struct {
	*httptest.Server
	t        *testing.T
	secret   string
	verifier *standardwebhooks.Webhook
	check    func(event string) error // by the schemas

	mu       sync.Mutex
	bodies   map[string]string             // by ID
	known    map[string]*testserver.Hooked // by namespace
	previous map[string]bool               // the IDs of events that were taken
	open     map[string]bool               // namespaces with a request
	tries    int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{
		t: t, bodies: map[string]string{}, known: map[string]*testserver.Hooked{}, previous: map[string]bool{},
		open:   map[string]bool{},
		secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32))),
	}
	var err error
	r.verifier, err = standardwebhooks.NewWebhook(r.secret)
	require.NoError(t, err)
	schemas, err := docs.Files().ReadFile("webhooks.schema.json")
	require.NoError(t, err)
	r.check = testguide.Events(t, string(schemas))
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// config returns a file in which a webhook delivers to the receiver.
func (r *receiver) config(t *testing.T) string {
	t.Helper()
	secrets := testserver.WriteFile(t, "secrets", []byte(r.secret))
	return testserver.WriteConfig(t, fmt.Sprintf(`
green: 2s
yellow: 1h
ping-interval: 1s
webhooks:
  app: {url: %q, secrets-file: %q, namespaces: ["chat-*"], report: status}
`, r.URL+"/hooks", secrets))
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the server was killed
	}
	assert.NoError(r.t, r.verifier.Verify(body, request.Header))
	assert.NoError(r.t, r.check(string(body)), "%s", body)
	var event testserver.HookEvent
	assert.NoError(r.t, json.Unmarshal(body, &event))
	r.mu.Lock()
	id, namespace := request.Header.Get("Webhook-Id"), event.Data.Namespace
	known, again := r.bodies[id]
	assert.True(r.t, !again || known == string(body), "the same ID for other bytes")
	r.bodies[id] = string(body)
	assert.False(r.t, r.open[namespace], "two requests at a time")
	r.open[namespace] = true
	r.tries++
	refuse := r.tries%5 == 0
	r.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // a receiver has work to do
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, namespace)
	if refuse {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if !r.previous[id] {
		r.previous[id] = true
		if r.known[namespace] == nil {
			r.known[namespace] = &testserver.Hooked{}
		}
		assert.NoError(r.t, r.known[namespace].Take(event))
	}
}

// knows reports whether the receiver knows what is true, by namespace and user.
func (r *receiver) knows(truth map[string]map[string]string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	statuses := map[string]map[string]string{}
	for namespace, known := range r.known {
		if !known.Complete() {
			return false
		}
		statuses[namespace] = known.Statuses
	}
	return assert.ObjectsAreEqual(truth, statuses)
}

// resets returns how many there were.
func (r *receiver) resets() (sum int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.known {
		sum += known.Resets
	}
	return sum
}

// TestWebhooks: whatever happens to servers, a receiver ends with what is true: each server is killed while users come
// and go, and requests fail.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, store []string) {
		r := newReceiver(t)
		args := slices.Concat(store, []string{"--config", r.config(t), "--admin-listen", "127.0.0.1:0"})
		onRedis := strings.HasPrefix(store[1], "redis")
		servers := []*testserver.Server{testserver.Start(t, args...)}
		if onRedis {
			servers = append(servers, testserver.Start(t, args...))
		}
		for round := range 3 {
			writeFor(t, servers[len(servers)-1], time.Second)
			holder := 0
			if onRedis && strings.Contains(servers[1].Metrics(t), `lastseen_webhooks_holding{webhook="app"} 1`) {
				holder = 1
			}
			if round < 2 {
				servers[holder].Kill()
				servers[holder] = testserver.Start(t, args...)
			}
		}
		require.Eventually(t, func() bool {
			truth := map[string]map[string]string{}
			for _, namespace := range []string{"chat-1", "chat-2"} {
				truth[namespace] = map[string]string{}
				for _, u := range servers[0].Get(t, "/v1/namespaces/"+namespace+"/users?status=green&status=yellow&limit=1000")["users"].([]any) {
					u := u.(map[string]any)
					truth[namespace][u["user"].(string)] = u["status"].(string)
				}
			}
			return r.knows(truth)
		}, scenarioWait, 100*time.Millisecond)
		if onRedis {
			require.Zero(t, r.resets(), "the place is kept")
		} else {
			require.GreaterOrEqual(t, r.resets(), 2, "each restart is one, for each namespace")
		}
	})
}

// writeFor has users of two namespaces come and go for some time.
func writeFor(t *testing.T, s *testserver.Server, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		action := []string{"ping", "ping", "leave"}[rand.IntN(3)]
		path := fmt.Sprintf("/v1/namespaces/chat-%d/users/user%d/%s", 1+rand.IntN(2), rand.IntN(300), action)
		s.Post(t, path, "")
	}
}
