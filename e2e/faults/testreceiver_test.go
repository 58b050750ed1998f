//go:build faults

package faults

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testserver"
)

// receiver is what a webhook delivers the namespace chat to. It keeps who has which status, as the guide says. Its
// rules:
//
//   - An ID always comes with the same bytes, and counts once.
//   - Nothing is missed, and the order is kept: what a user was before is what the receiver was told last.
//   - A reset ends what was told before, until the snapshot that follows is complete. There is none without a reset.
//   - In the end every user has the status that follows from their acknowledged writes.
type receiver struct {
	*httptest.Server
	ledger     *ledger
	thresholds lastseen.Thresholds
	verifier   *standardwebhooks.Webhook

	mu       sync.Mutex
	answer   http.HandlerFunc             // after an event was taken; nil for 200
	bodies   map[string][sha256.Size]byte // by ID
	taken    map[string]bool              // by ID
	known    testserver.Hooked
	events   int
	repeated int
}

// receiverStats are what a receiver got.
type receiverStats struct{ events, repeated, resets int }

const receiverSecret = "0123456789abcdef0123456789abcdef"

func startReceiver(t testing.TB, l *ledger, thresholds lastseen.Thresholds) *receiver {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhookRaw([]byte(receiverSecret))
	require.NoError(t, err)
	r := &receiver{
		ledger: l, thresholds: thresholds, verifier: verifier,
		bodies: map[string][sha256.Size]byte{}, taken: map[string]bool{},
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// hookArgs are the arguments of servers with webhooks to receivers, by name.
func hookArgs(t testing.TB, receivers map[string]*receiver) []string {
	t.Helper()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(receiverSecret))
	file := testserver.WriteFile(t, "secrets", []byte(secret))
	var config strings.Builder
	config.WriteString("webhooks:\n")
	for name, r := range receivers {
		fmt.Fprintf(&config, "  %s: {url: %q, secrets-file: %q, namespaces: [chat], report: status}\n", name, r.URL, file)
	}
	return []string{"--config", testserver.WriteConfig(t, config.String())}
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the server was killed
	}
	if answer := r.take(request.Header, body); answer != nil {
		answer(w, request)
	}
}

// take takes what was received, and returns how it is answered.
func (r *receiver) take(header http.Header, body []byte) (answer http.HandlerFunc) {
	var e testserver.HookEvent
	id, sum := header.Get("Webhook-Id"), sha256.Sum256(body)
	err := r.verifier.Verify(body, header)
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, repeated := r.bodies[id]
	if err != nil || repeated && known != sum {
		r.ledger.violate("a request with the ID %s, known: %t, of %q: %v", id, repeated, body, err)
		return nil
	}
	r.bodies[id] = sum
	r.events++
	if repeated {
		r.repeated++
	}
	if !r.taken[id] {
		r.taken[id] = true
		if err := r.known.Take(e); err != nil {
			r.ledger.violate("the receiver: %v", err)
		}
	}
	return r.answer
}

// answers has the receiver answer something else than 200 from now on; nil for 200.
func (r *receiver) answers(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// hold waits for the next event, which is taken, and not answered until release is called.
func (r *receiver) hold(t testing.TB) (release func()) {
	t.Helper()
	taken, released := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	r.answers(func(http.ResponseWriter, *http.Request) {
		r.answers(nil)
		close(taken)
		<-released
	})
	select {
	case <-taken:
	case <-time.After(awaitFor):
		t.Fatal("no event")
	}
	return release
}

func (r *receiver) snapshotStats() receiverStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return receiverStats{r.events, r.repeated, r.known.Resets}
}

// check returns an error while the receiver knows a status that is wrong, of users whose state is certain for a while.
// It returns how many those are.
func (r *receiver) check() (certain int, err error) {
	now := time.Now()
	since := now.Add(-clockTolerance)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known.Complete() {
		return 0, errors.New("no complete snapshot")
	}
	for _, user := range r.ledger.names() {
		state, ok := r.ledger.settled(user, since)
		if !ok {
			continue
		}
		certain++
		known := lastseen.Status(r.known.StatusOf(user))
		before := r.thresholds.Presence(user, state.state, lastseen.InstantOf(since)).Status
		after := r.thresholds.Presence(user, state.state, lastseen.InstantOf(now)).Status
		if known != before && known != after {
			return certain, fmt.Errorf("%s is known as %s instead of %s", user, known, after)
		}
	}
	return certain, nil
}

// awaitTrue waits until the receiver knows what is true of somebody.
func (r *receiver) awaitTrue(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(awaitFor); ; time.Sleep(20 * time.Millisecond) {
		certain, err := r.check()
		if certain > 0 && err == nil {
			return
		}
		require.True(t, time.Now().Before(deadline), "the receiver: %v, of %d users", err, certain)
		require.Empty(t, r.ledger.broken())
	}
}

// begin waits until the receiver knows what is true, and forgets how much it took until then: a webhook that is new can
// begin with a reset.
func (r *receiver) begin(t testing.TB) {
	t.Helper()
	r.awaitTrue(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.repeated, r.known.Resets = 0, 0, 0
}

// awaitEvents waits until the receiver got n more events.
func (r *receiver) awaitEvents(t testing.TB, n int) {
	t.Helper()
	before := r.snapshotStats().events
	await(t, fmt.Sprintf("%d more events", n), func() bool { return r.snapshotStats().events >= before+n })
}
