package jobs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// failingRegistry is a store that registers nothing for a while.
type failingRegistry struct {
	store.Store
	errs       []error
	registered [][]string
}

func (r *failingRegistry) Register(_ context.Context, names []string) error {
	r.registered = append(r.registered, names)
	if len(r.errs) == 0 {
		return nil
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return err
}

// TestRegistrarTriesAgain: it tries again soon after a failure, checks now and then after a success, and looks at once
// at names that changed.
func TestRegistrarTriesAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	away, other := store.ErrUnavailable, fmt.Errorf("%w: chat", store.ErrMismatch)
	s := &failingRegistry{errs: []error{away, away, nil, other, other, nil, away, away, away, away, away, away, nil}}
	names := []string{"a"}
	var paused []time.Duration
	var log bytes.Buffer
	over := make(chan time.Time)
	close(over)
	r := NewRegistrar(s, func() []string { return names }, changed, slog.New(slog.NewTextHandler(&log, nil)))
	r.after = func(d time.Duration) <-chan time.Time {
		paused = append(paused, d)
		switch len(paused) {
		case 3:
			names = []string{"a", "b"}
			changed <- struct{}{}
			return nil
		case 14:
			cancel()
			return nil
		}
		return over
	}
	r.Once(ctx)
	require.Equal(t, [][]string{{"a"}}, s.registered)
	r.Run(ctx)
	require.Len(t, s.registered, 14)
	require.Equal(t, [][]string{{"a"}, {"a"}, {"a"}, {"a", "b"}}, s.registered[:4])
	const soon, often = time.Second, 10 * time.Second
	require.Equal(t, []time.Duration{
		soon, 2 * soon, often, often, often, often, soon, 2 * soon, 4 * soon, 8 * soon, often, often, often, often,
	}, paused)
	for text, times := range map[string]int{
		"trying again": 2, "are registered": 2, "cannot be served": 1, "can be served again": 1,
	} {
		require.Equal(t, times, strings.Count(log.String(), text), "%s in %s", text, &log)
	}
}
