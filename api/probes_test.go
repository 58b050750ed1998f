package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// slowProbeStore is a store that reports whether it is ready when the test lets it.
type slowProbeStore struct {
	store.Store
	asked atomic.Int64
	let   chan error
}

func (p *slowProbeStore) Ready(ctx context.Context) error {
	p.asked.Add(1)
	select {
	case err := <-p.let:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestProbesShareAResult checks that a thousand concurrent readiness probes call the store once.
func TestProbesShareAResult(t *testing.T) {
	for _, outcome := range []error{nil, store.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			s := &slowProbeStore{let: make(chan error)}
			handler := New(Config{Store: s, Settings: Settings{}})
			var responded sync.WaitGroup
			var ready, failed atomic.Int64
			ask := func(ctx context.Context) {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
				switch w.Code {
				case http.StatusOK:
					ready.Add(1)
				case http.StatusServiceUnavailable:
					failed.Add(1)
				}
			}
			first, leave := context.WithCancel(t.Context())
			responded.Go(func() { ask(first) })
			synctest.Wait()
			for range 1000 {
				responded.Go(func() { ask(t.Context()) })
			}
			synctest.Wait()
			leave() // the one whose probe the others share
			synctest.Wait()
			s.let <- outcome
			responded.Wait()
			require.EqualValues(t, 1, s.asked.Load())
			if outcome == nil {
				require.EqualValues(t, 1001, ready.Load())
			} else {
				require.EqualValues(t, 1001, failed.Load())
			}
		})
	}
}

func TestProbes(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`,
		"/version": `{"version":"v0.0.0-test","go":"go"}`,
	} {
		r := w.sendTo(http.MethodGet, path+"?probe=1", "")
		require.Equal(t, http.StatusOK, r.status)
		require.JSONEq(t, want, r.body)
	}
	require.NoError(t, w.store.Close())
	require.Equal(t, http.StatusServiceUnavailable, w.sendTo(http.MethodGet, "/readyz", "").status)
	require.Equal(t, http.StatusOK, w.sendTo(http.MethodGet, "/healthz", "").status)
}
