//go:build faults

package faults

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// hooked is two servers on one Redis that deliver for two webhooks, and a load at a third one that does not.
type hooked struct {
	app, other *receiver
	servers    []*server // that deliver
	load       *load
}

func startHooked(t *testing.T) *hooked {
	t.Helper()
	l := newLedger()
	h := &hooked{app: startReceiver(t, l, followThresholds()), other: startReceiver(t, l, followThresholds())}
	redis, args := redistest.StartProcess(t), append(calm(), "--green", "2s", "--yellow", "6s", "--ping-interval", "1s")
	h.load = startLoad(t, loadOptions{users: 300, rate: 100, leaves: 0.2, ledger: l},
		startServer(t, redis.URL(), args...))
	args = append(args, hookArgs(t, map[string]*receiver{"app": h.app, "other": h.other})...)
	for range 2 {
		h.servers = append(h.servers, startServer(t, redis.URL(), args...))
	}
	h.app.begin(t)
	h.other.begin(t)
	return h
}

// holder returns the server that delivers for a webhook, and the other one.
func (h *hooked) holder(t *testing.T) (holder, other *server) {
	t.Helper()
	await(t, "a server that delivers", func() bool {
		for i, s := range h.servers {
			if s.healthy() && s.metric(t, `lastseen_webhooks_holding{webhook="app"}`) == 1 {
				holder, other = s, h.servers[1-i]
			}
		}
		return holder != nil
	})
	return holder, other
}

// finish checks that nothing was missed: no reset came, and the receivers know what is true.
func (h *hooked) finish(t *testing.T) {
	t.Helper()
	h.app.awaitTrue(t)
	h.load.stop(t)
	for name, r := range map[string]*receiver{"app": h.app, "other": h.other} {
		r.awaitTrue(t)
		t.Logf("%s: %+v", name, r.snapshotStats())
		require.Zero(t, r.snapshotStats().resets, name)
	}
	h.load.requireKept(t)
}

// TestWebhookHolderKilled kills the server that delivers: after the receiver took an event and before the server knows
// that, and between two tries. The other one sends the same again.
func TestWebhookHolderKilled(t *testing.T) {
	t.Parallel()
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		h := startHooked(t)
		release := h.app.hold(t)
		holder, _ := h.holder(t)
		before := h.app.snapshotStats().repeated
		holder.kill(t)
		release()
		await(t, "the event again", func() bool { return h.app.snapshotStats().repeated > before })
		holder.start(t)
		h.finish(t)
	})
	t.Run("between tries", func(t *testing.T) {
		t.Parallel()
		h := startHooked(t)
		holder, _ := h.holder(t)
		h.app.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		h.app.awaitEvents(t, 2)
		holder.kill(t)
		h.app.answers(nil)
		before := h.app.snapshotStats().repeated
		await(t, "the event again", func() bool { return h.app.snapshotStats().repeated > before })
		holder.start(t)
		h.finish(t)
	})
}

// TestWebhookHolderSuspended suspends the server that delivers, in the middle of a request, until another one has gone
// on. When it wakes up, it believes for a moment that it still delivers.
func TestWebhookHolderSuspended(t *testing.T) {
	t.Parallel()
	h := startHooked(t)
	for range 2 {
		release := h.app.hold(t)
		holder, _ := h.holder(t)
		holder.signal(t, syscall.SIGSTOP)
		release()
		h.app.awaitEvents(t, 5)
		holder.signal(t, syscall.SIGCONT)
		holder.awaitMetric(t, `lastseen_webhooks_holding{webhook="app"}`, 0)
		h.app.awaitEvents(t, 5)
	}
	h.finish(t)
}

// TestWebhookReceiverFails has a receiver fail in all ways for a while. Nothing is missed, and another receiver is not
// affected.
func TestWebhookReceiverFails(t *testing.T) {
	t.Parallel()
	h := startHooked(t)
	for name, answer := range map[string]http.HandlerFunc{
		"500":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"closes": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"closes in the middle": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(http.StatusInternalServerError)
			panic(http.ErrAbortHandler)
		},
		"late": func(http.ResponseWriter, *http.Request) { time.Sleep(16 * time.Second) }, // a request ends after 15 s
	} {
		h.app.answers(answer)
		before := h.app.snapshotStats().repeated
		await(t, name+": an event again", func() bool {
			require.Empty(t, h.load.broken())
			return h.app.snapshotStats().repeated > before
		})
		h.other.awaitTrue(t)
		h.app.answers(nil)
		h.app.awaitTrue(t)
	}
	h.finish(t)
}

// TestWebhookInSentinelFailover kills the primary, whose replica lacks the last changes, which the receiver was told,
// and where delivering was. The receiver gets a reset, whether the server that delivered is killed meanwhile or not.
func TestWebhookInSentinelFailover(t *testing.T) {
	t.Parallel()
	for name, kills := range map[string]bool{"server goes on": false, "server killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watched := redistest.StartSentinel(t)
			r := startReceiver(t, newLedger(), followThresholds())
			args := append(hookArgs(t, map[string]*receiver{"app": r}), calm()...)
			h := &hooked{app: r}
			for range 2 {
				h.servers = append(h.servers, startServer(t, watched.URL(), args...))
			}
			holder, other := h.holder(t)
			knows := func(user string, known bool) {
				t.Helper()
				await(t, "the receiver to know of "+user, func() bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					return r.known.Complete() && known == (r.known.StatusOf(user) != "grey")
				})
			}
			other.served(t, http.MethodPost, userPath("stays")+"/ping", nil)
			knows("stays", true)
			cutReplica(t, watched)
			other.served(t, http.MethodPost, userPath("lost")+"/ping", nil)
			knows("lost", true)
			if kills {
				holder.kill(t)
			}
			before := r.snapshotStats().resets
			watched.Nodes[0].Stop(t)
			await(t, "the replica to be the primary", func() bool { return watched.Primary() == watched.Nodes[1] })
			knows("lost", false)
			knows("stays", true)
			require.Greater(t, r.snapshotStats().resets, before)
			other.served(t, http.MethodPost, userPath("new")+"/ping", nil)
			knows("new", true)
			require.Empty(t, r.ledger.broken())
		})
	}
}
