package observe

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// settling is a store that cannot make a user invisible yet: only Redis does this, and not on demand.
type settling struct{ store.Store }

func (settling) SetAvailability(
	context.Context, string, string, lastseen.Said, lastseen.Instant,
) (lastseen.State, error) {
	return lastseen.State{}, &store.SettlingError{Rest: time.Second}
}

func (settling) SetContacts(context.Context, string, string, []string) error {
	return store.ErrTooManyContacts
}

func (settling) ListContacts(context.Context, string, string, string, int) ([]string, error) {
	return nil, store.ErrNoContacts
}

// TestRefusalsOfPeople checks that what a store refuses by its contract is not a failure of the store.
func TestRefusalsOfPeople(t *testing.T) {
	c := NewCalls()
	s := Store(settling{}, c)
	_, err := s.SetAvailability(t.Context(), "chat", "alice", lastseen.Said{Availability: lastseen.Invisible}, 1)
	require.ErrorIs(t, err, store.ErrSettling)
	require.ErrorIs(t, s.SetContacts(t.Context(), "chat", "alice", nil), store.ErrTooManyContacts)
	_, err = s.ListContacts(t.Context(), "chat", "alice", "", 1)
	require.ErrorIs(t, err, store.ErrNoContacts)
	calls, _ := measured(t, c)
	require.Equal(t, map[string]uint64{
		callMetric + "set_availability ok": 1, callMetric + "set_contacts ok": 1, callMetric + "list_contacts ok": 1,
	}, calls)
}
