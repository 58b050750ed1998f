package webhooks

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestDelivers: changes are delivered once, in order.
func TestDelivers(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.send(comes("alice"), comes("bob", "carol"))
		require.Equal(t, []string{"changed alice", "changed bob carol"}, f.got())
		f.send(feed.Batch{Users: []feed.Update{update("bob", lastseen.Green, lastseen.Yellow)}})
		require.Empty(t, f.got(), "not reported")
		require.Equal(t, []Stats{{Webhook: "app", Holding: true, Namespaces: 1}}, m.Stats())
		require.Equal(t, map[Result]int{Delivered: 4}, f.observed.tried)
		require.Len(t, f.observed.lags, 2)
	})
}

// TestHolds: changes that are held are delivered when they are due, without another change.
func TestHolds(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.use("2", time.Minute)
		f.send(comes("alice"))
		time.Sleep(time.Minute - time.Millisecond)
		require.Empty(t, f.got())
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"changed alice"}, f.got())
		require.Equal(t, []time.Duration{0}, f.observed.lags)
	})
}

// TestRepeats: what fails is sent again, the same bytes under the same ID, and nothing overtakes it.
func TestRepeats(t *testing.T) {
	t.Parallel()
	unreachable := func(*http.Request, string) (int, http.Header, error) { return 0, nil, errors.New("unreachable") }
	for name, answer := range map[string]reply{
		"no response": unreachable, "500": status(500), "408": status(408), "425": status(425), "429": status(429),
		"redirect": status(302, "Location", "https://elsewhere.example.com/"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, f *fixture, m *Manager) {
				f.replies(answer)
				f.send(comes("alice"), comes("bob"))
				time.Sleep(time.Minute)
				require.GreaterOrEqual(t, m.Stats()[0].Behind, 59*time.Second)
				f.replies(status(200))
				time.Sleep(maxRetry)
				f.mu.Lock()
				first, tries := f.requests[0], f.requests[:len(f.requests)-1]
				f.mu.Unlock()
				require.Greater(t, len(tries), 5)
				for k, r := range tries[1:] {
					require.Equal(t, first.id, r.id)
					require.Equal(t, first.body, r.body)
					longest := min(minRetry<<k, maxRetry)
					require.InDelta(t, longest, r.at.Sub(tries[k].at), 0.01*float64(longest), "full jitter up to this")
				}
				got := f.got()
				require.Equal(t, []string{"changed alice", "changed bob"}, got[len(got)-2:])
				require.Zero(t, m.Stats()[0].Behind)
				require.Contains(t, f.log.String(), "the receiver accepts events again")
				require.Equal(t, 1, f.observed.reset)
			})
		})
	}
}

// TestRetryAfter: a receiver says when to try again, up to an hour.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_000_000, 0)
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "86400": time.Hour, "-1": 0, "soon": 0, "99999999999999999999": 0,
		now.Add(time.Minute).UTC().Format(http.TimeFormat):  time.Minute,
		now.Add(-time.Minute).UTC().Format(http.TimeFormat): 0,
	} {
		require.Equal(t, want, retryAfter(header, now), header)
	}
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(status(503, "Retry-After", "90"))
		f.send(comes("alice"))
		time.Sleep(90*time.Second - time.Millisecond)
		require.Equal(t, []string{"changed alice"}, f.got())
		f.replies(status(200))
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"changed alice"}, f.got())
	})
}

// TestRefusedEvents: an event that the receiver refuses for good is dropped, and the next one is delivered.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(status(400))
		f.send(comes("alice", "bob"))
		require.Equal(t, []string{"changed alice bob"}, f.got())
		f.replies(status(200))
		f.send(comes("carol"))
		require.Equal(t, []string{"changed carol"}, f.got())
		require.Equal(t, 2, f.observed.dropped)
		require.Contains(t, f.log.String(), "the receiver answered 400")
	})
}

// TestTooLargeEvents: an event is halved until the receiver takes it. One with a single user is dropped.
func TestTooLargeEvents(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(func(r *http.Request, body string) (int, http.Header, error) {
			if strings.Count(body, `"user"`) > 1 || strings.Contains(body, "dora") {
				return status(413)(r, body)
			}
			return status(200)(r, body)
		})
		f.send(comes("alice", "bob", "carol", "dora"))
		require.Equal(t, []string{
			"changed alice bob carol dora", "changed alice bob", "changed alice", "changed bob",
			"changed carol dora", "changed carol", "changed dora",
		}, f.got())
		require.Equal(t, 1, f.observed.dropped)
	})
}

// TestGone: 410 ends delivering, until the entry changes. The lease is kept, so no other server begins.
func TestGone(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.replies(status(410))
		f.send(comes("alice"))
		require.Equal(t, []string{"changed alice"}, f.got())
		f.replies(status(200))
		time.Sleep(time.Hour)
		require.Empty(t, f.got())
		require.Equal(t, []Stats{{Webhook: "app", Holding: true, Disabled: true}}, m.Stats())
		f.away(time.Hour)
		require.Empty(t, f.got(), "it is kept")
		same := *f.webhook
		f.locked(func() { f.webhook = &same }) // another reload
		time.Sleep(time.Hour)
		require.Empty(t, f.got())
		other := same
		other.Entry = "2"
		f.locked(func() { f.webhook = &other })
		time.Sleep(lookEvery + listEvery)
		require.Equal(t, []string{"changed alice"}, f.got())
	})
}

// TestLostPlace: a receiver that was away for longer than changes are kept gets a reset and a snapshot, and one reset
// in ten minutes if it stays away.
func TestLostPlace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(status(500))
		f.send(comes("alice"))
		time.Sleep(time.Hour)
		resets := map[string]bool{}
		synctest.Wait()
		for _, r := range f.requests {
			if parse(t, []byte(r.body)).Type == Reset {
				resets[r.id] = true
			}
		}
		require.LessOrEqual(t, len(resets), 6)
		require.NotEmpty(t, resets)
		f.got()
		f.replies(status(200))
		time.Sleep(2 * maxRetry)
		got := f.got()
		require.Equal(t, []string{"reset", "snapshot zoe"}, got[len(got)-2:])
		require.Equal(t, 2, f.observed.reset)
	})
}

// TestBehind: a receiver that is slower than the feed keeps changes in memory gets them from the store.
func TestBehind(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		slow := comes("alice")
		slow.More = true
		f.send(slow, feed.Batch{Reset: true})
		require.Equal(t, []string{"changed alice"}, f.got())
		require.Equal(t, []store.Position{"2"}, f.after, "it goes on after that")
		f.send(comes("bob"))
		require.Equal(t, []string{"changed bob"}, f.got())
	})
}

// TestNamespaceAgain: a namespace that was deleted and exists again begins with a reset: what was before is not known.
func TestNamespaceAgain(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.send(feed.Batch{Page: true, Users: []feed.Update{update("alice", "", lastseen.Green)}})
		time.Sleep(feedResetEvery)
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
	})
}

// TestHoldIsReloaded: a shorter hold is for what is held already, too.
func TestHoldIsReloaded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.use("1", 5*time.Minute)
		f.send(comes("alice"))
		require.Empty(t, f.got())
		f.use("2", time.Second)
		f.send(comes("bob"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"changed alice", "changed bob"}, f.got())
	})
}

// TestGoneDuringAReload: 410 is about the entry of the request, and not about one that replaced it meanwhile.
func TestGoneDuringAReload(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.replies(func(*http.Request, string) (int, http.Header, error) {
			f.replies(status(200))
			f.change("2", 0)
			time.Sleep(lookEvery + time.Millisecond) // until the manager has seen it
			return http.StatusGone, nil, nil
		})
		f.send(comes("alice"))
		time.Sleep(lookEvery + time.Second)
		require.Equal(t, []string{"changed alice", "changed alice"}, f.got())
		require.False(t, m.Stats()[0].Disabled)
		f.send(comes("bob"))
		require.Equal(t, []string{"changed bob"}, f.got())
	})
}

// TestLeaseIsNotRenewed: a store that does not respond for a moment changes nothing. Before the lease can have ended,
// delivering ends.
func TestLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		fail := func(err error) { f.locked(func() { f.leaseErr = err }) }
		fail(store.ErrUnavailable)
		time.Sleep(lookEvery + renewRetry)
		fail(nil)
		time.Sleep(time.Minute)
		require.Empty(t, f.got())
		require.True(t, m.Stats()[0].Holding)
		fail(store.ErrUnavailable)
		time.Sleep(leaseTime - time.Second)
		synctest.Wait()
		require.False(t, m.Stats()[0].Holding)
		require.Equal(t, f.watchers, f.closed)
	})
}

// TestNoFeed: while a namespace has no feed, the log says so once a minute, and delivering begins when it has one.
func TestNoFeed(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.locked(func() { f.watchErr = store.ErrNoFeed })
		f.lose()
		time.Sleep(10*noFeedRetry - time.Second)
		require.Empty(t, f.got())
		require.Equal(t, 10, strings.Count(f.log.String(), "has no changes feed"))
		f.locked(func() { f.watchErr = nil })
		time.Sleep(noFeedRetry)
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
	})
}

// TestHangingReceiver: a request ends in time, and so does a manager whose receiver hangs.
func TestHangingReceiver(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(func(r *http.Request, _ string) (int, http.Header, error) {
			<-r.Context().Done()
			return 0, nil, r.Context().Err()
		})
		f.send(comes("alice"))
		time.Sleep(tryTimeout + 2*time.Second)
		synctest.Wait()
		require.Len(t, f.requests, 2)
		require.Contains(t, f.log.String(), "no response in time")
	})
}
