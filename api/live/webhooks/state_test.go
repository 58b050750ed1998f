package webhooks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// states returns the states of the only webhook.
func states(t *testing.T, m *Manager) State {
	t.Helper()
	all, err := m.States(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// TestStates: any server tells how a webhook fares.
func TestStates(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		began := lastseen.InstantOf(time.Now())
		time.Sleep(noteEvery + lookEvery)
		s := states(t, m)
		require.Equal(t, State{Webhook: "app", Holder: true, Delivered: began}, s)
		f.replies(status(500))
		f.send(comes("alice"))
		failed := lastseen.InstantOf(time.Now())
		time.Sleep(time.Minute)
		s = states(t, m)
		require.Equal(t, time.Minute, s.Behind)
		require.Equal(t, began, s.Delivered)
		require.GreaterOrEqual(t, s.Failed, failed)
		require.Equal(t, "the receiver answered 500", s.Error)
		f.locked(func() { f.lost = true })
		time.Sleep(time.Minute)
		require.False(t, states(t, m).Holder)
		require.Equal(t, 2*time.Minute, states(t, m).Behind)
	})
}

// TestEnable: a webhook whose receiver was gone is delivered again, from where it was, if somebody says so.
func TestEnable(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		require.ErrorIs(t, m.Enable(t.Context(), "other"), ErrUnknown)
		require.NoError(t, m.Enable(t.Context(), "app"), "it is")
		f.replies(status(410))
		f.send(comes("alice"))
		require.Equal(t, []string{"changed alice"}, f.got())
		time.Sleep(lookEvery)
		synctest.Wait()
		require.True(t, states(t, m).Disabled)
		f.replies(status(200))
		require.NoError(t, m.Enable(t.Context(), "app"))
		require.False(t, states(t, m).Disabled)
		time.Sleep(lookEvery)
		require.Equal(t, []string{"changed alice"}, f.got())
		require.False(t, m.Stats()[0].Disabled)
	})
}

// TestTry: a test event is sent once, also if nothing else is.
func TestTry(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		_, err := m.Try(t.Context(), "other")
		require.ErrorIs(t, err, ErrUnknown)
		a, err := m.Try(t.Context(), "app")
		require.NoError(t, err)
		require.Equal(t, Attempt{Result: Delivered}, a)
		require.Regexp(t, `^{"type":"test","timestamp":"[^"]+","data":{"webhook":"app"}}$`, f.requests[0].body)
		require.Equal(t, []string{"test"}, f.got())
		f.replies(status(503))
		a, err = m.Try(t.Context(), "app")
		require.NoError(t, err)
		require.Equal(t, Attempt{Result: Failed, Reason: "the receiver answered 503"}, a)
		require.Len(t, f.got(), 1, "it is not repeated")
	})
}

// TestOtherSettings: servers with different files say so.
func TestOtherSettings(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		const warning = "another server delivers with other settings"
		f.locked(func() { f.lost = true })
		time.Sleep(2 * compareEvery)
		require.NotContains(t, f.log.String(), warning)
		n, kept, err := readNote[noted](t.Context(), f, "app", ownNote)
		require.NoError(t, err)
		n.Entry, n.At = "another", lastseen.InstantOf(time.Now().Add(compareEvery))
		_, err = writeNote(t.Context(), f, "app", ownNote, kept.Version, n)
		require.NoError(t, err)
		time.Sleep(2 * compareEvery)
		require.Contains(t, f.log.String(), warning)
	})
}
