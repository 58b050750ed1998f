package observe

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// refusing is a store that refuses by its contract, each call for another reason.
type refusing struct{ store.Store }

func (refusing) SetAvailability(
	context.Context, string, string, lastseen.AvailabilityState, lastseen.Instant,
) (lastseen.State, error) {
	return lastseen.State{}, store.ErrEvicts
}

func (refusing) SetContacts(context.Context, string, string, []string) error {
	return store.ErrTooManyContacts
}

func (refusing) ChangeContacts(context.Context, string, string, []string, []string) error {
	return store.ErrContactsChanged
}

func (refusing) ListContacts(context.Context, string, string, string, int) ([]string, error) {
	return nil, store.ErrNoContacts
}

func (refusing) StartCall(_ context.Context, _ string, c store.NewCall) (store.CallStep, error) {
	return store.CallStep{}, map[string]error{
		"1": store.ErrCallerBusy, "2": store.ErrCalleeBusy, "3": store.ErrTooManyCalls, "4": store.ErrCallKeyReused,
		"5": store.ErrCalleeUnavailable, "6": store.ErrNamespaceLimit,
	}[c.ID]
}

func (refusing) ExpireCalls(context.Context, string) (store.ExpiredCalls, error) {
	return store.ExpiredCalls{}, store.ErrNoCalls
}

// TestRefusals checks that what a store refuses by its contract is not a failure of the store.
func TestRefusals(t *testing.T) {
	c := NewCalls()
	s := Store(refusing{}, c)
	invisible := lastseen.AvailabilityState{Availability: lastseen.Invisible}
	_, err := s.SetAvailability(t.Context(), "chat", "alice", invisible, 1)
	require.ErrorIs(t, err, store.ErrEvicts)
	require.ErrorIs(t, s.SetContacts(t.Context(), "chat", "alice", nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(t.Context(), "chat", "alice", nil, nil), store.ErrContactsChanged)
	_, err = s.ListContacts(t.Context(), "chat", "alice", "", 1)
	require.ErrorIs(t, err, store.ErrNoContacts)
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		_, err := s.StartCall(t.Context(), "chat", store.NewCall{ID: id})
		require.Error(t, err)
	}
	_, err = s.ExpireCalls(t.Context(), "chat")
	require.ErrorIs(t, err, store.ErrNoCalls)
	calls, _ := measured(t, c)
	require.Equal(t, map[string]uint64{
		callMetric + "set_availability ok": 1, callMetric + "set_contacts ok": 1, callMetric + "list_contacts ok": 1,
		callMetric + "change_contacts ok": 1,
		callMetric + "start_call ok":      5, callMetric + "start_call full": 1,
		callMetric + "expire_calls ok": 1,
	}, calls)
}
