package webhooks

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestResets: if the feed lost changes, the receiver gets a reset, also if that happens again and again: soon after
// the last one.
func TestResets(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		for range 5 {
			time.Sleep(feedResetEvery - time.Second)
			f.lose()
			require.Empty(t, f.got())
			time.Sleep(time.Second)
			require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
			require.Zero(t, m.Stats()[0].Behind)
		}
		time.Sleep(feedResetEvery)
		f.lose()
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got(), "at once")
	})
}

// TestResetsOfSlowReceiver: a receiver that is too slow for the feed gets one reset in ten minutes.
func TestResetsOfSlowReceiver(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		for range 3 {
			f.replies(status(503, "Retry-After", "30"))
			slow := comes("alice")
			slow.More = true
			f.locked(func() { f.delayed = true })
			f.send(slow, slow)
			require.Equal(t, []string{"changed alice"}, f.got())
			f.replies(status(200))
			time.Sleep(keptUp)
			require.Equal(t, []string{"changed alice", "changed alice"}, f.got(), "again, and the next one")
			f.lose()
			time.Sleep(resetEvery - keptUp - 10*time.Second)
			require.Empty(t, f.got())
			require.GreaterOrEqual(t, m.Stats()[0].Behind, resetEvery-keptUp-11*time.Second, "an alert fires")
			time.Sleep(12 * time.Second)
			require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
			require.Zero(t, m.Stats()[0].Behind)
		}
	})
}

// TestOutagesAreNoFault: a receiver that kept up until the store was away, or until nothing happened for long, gets a
// reset soon after the feed is lost.
func TestOutagesAreNoFault(t *testing.T) {
	t.Parallel()
	many := comes("alice")
	many.More = true
	for name, before := range map[string]func(*fixture){
		"outage": func(f *fixture) {
			f.replies(func(*http.Request, string) (int, http.Header, error) { // and the place cannot be kept then
				f.locked(func() { f.noteErr, f.watchErr = store.ErrUnavailable, store.ErrUnavailable })
				return http.StatusOK, nil, nil
			})
			f.send(many, many)
			synctest.Wait()
			f.replies(status(200))
			time.Sleep(2 * keptUp)
			f.locked(func() {
				more := many
				more.Positions = f.next()
				f.watchErr, f.backlog, f.feedLost = nil, []feed.Batch{more, more, {Reset: true}}, true
			})
			time.Sleep(2 * followRetry)
		},
		"slow, and caught up": func(f *fixture) {
			f.replies(status(503, "Retry-After", "40"))
			f.send(many, many)
			time.Sleep(time.Second)
			f.replies(status(200))
			time.Sleep(40 * time.Second)
			f.send(comes("bob"))
			f.lose()
		},
		"nothing happens": func(f *fixture) { time.Sleep(2 * keptUp); f.lose() },
		"pages": func(f *fixture) {
			f.locked(func() { f.paging = true })
			f.lose()
			time.Sleep(feedResetEvery + time.Second)
			f.locked(func() { f.paging = false })
			f.replies(status(503, "Retry-After", "40"))
			page := feed.Batch{Page: true, More: true, Users: []feed.Update{update("amy", "", lastseen.Green)}}
			f.lose(page, page)
			time.Sleep(time.Second)
			f.replies(status(200))
			time.Sleep(keptUp + feedResetEvery)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, f *fixture, m *Manager) {
				time.Sleep(feedResetEvery)
				f.lose()
				require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
				f.locked(func() { f.feedLost = false })
				before(f)
				time.Sleep(feedResetEvery)
				got := f.got()
				require.Equal(t, []string{"reset", "snapshot zoe"}, got[max(0, len(got)-2):])
				require.Zero(t, m.Stats()[0].Behind)
			})
		})
	}
}
