package changes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunFaulty compares changes feeds with a model while stores break.
func RunFaulty(t *testing.T, open func(testing.TB) kit.Breakable) {
	t.Helper()
	testChangesModel(t, open)
}

// breakages returns the actions that the store makes possible.
func (m *changesModel) breakages() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	if m.Restart != nil {
		actions["restart"] = m.restart
	}
	if m.Fault != nil {
		actions["fault"] = m.fault
	}
	if m.Pass != nil {
		actions["pass"] = m.pass
	}
	if m.Step != nil {
		actions["step"] = m.step
	}
	return actions
}

func (m *changesModel) restart(t *rapid.T) {
	m.Store = m.Restart()
	if !m.Lasting {
		m.endFeed()
		m.talk.endCalls()
	}
	if m.devices != nil {
		m.firstDevice(t)
	}
}

// pass lets time pass: the feed may end, and entries may be dropped.
func (m *changesModel) pass(t *rapid.T) {
	// No sum of these is ChangesKept in as many steps as a run has.
	d := rapid.SampledFrom([]time.Duration{time.Second, 61 * time.Second, 11 * time.Minute}).Draw(t, "passes")
	m.Pass(d)
	m.let(d)
}

// let notes that time passed.
func (m *changesModel) let(pass time.Duration) {
	m.passed += pass
	if m.recorded && m.passed-m.renewed > store.ChangesKept {
		m.endFeed()
	}
}

// step sets the clock, at times with a write before the next advance. Where the watermark is too far ahead then, the
// feed begins again; and a store may always drop entries whose age it no longer knows.
func (m *changesModel) step(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 20_000 * time.Hour}).Draw(t, "by")
	if rapid.Bool().Draw(t, "back") {
		by = -by
	}
	m.forgetHidden(t)
	end := m.positions(t)
	m.let(m.Step(by))
	m.relearn(t)
	for _, r := range m.readers {
		r.lossy = true
	}
	if rapid.Bool().Draw(t, "write first") {
		user := kit.DrawUser.Draw(t, "user")
		state := kit.Ping(t, m, user, m.drawAt(t))
		m.claims(user, devices.Claim{At: state.At})
		m.become(user, state)
	}
	clock := kit.Now(t, m)
	ahead := m.watermark.Sub(clock)
	if m.recorded {
		m.settle(t, clock, end, ahead > store.MaxAhead)
	}
}

// positions returns the end of the feed.
func (m *changesModel) positions(t *rapid.T) []store.Position {
	read := &store.ChangesRead{Namespace: kit.Namespace, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	require.True(t, read.Err == nil || !m.recorded, "%v", read.Err)
	return read.Positions
}

// settle advances the feed to the store's clock, and finds out whether the feed began again.
func (m *changesModel) settle(t *rapid.T, clock lastseen.Instant, end []store.Position, begins bool) {
	watermark := m.advanceTo(t, clock+playAhead)
	read := &store.ChangesRead{Namespace: kit.Namespace, After: end, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	require.NoError(t, read.Err)
	require.Equal(t, begins, read.Reset, "the watermark was %s, and the clock is %s", m.watermark, clock)
	if m.advanceModel(watermark); read.Reset {
		m.newFeed()
		m.watermark = watermark
	}
}

// fault takes over the state after a fault: which writes were lost is not known.
func (m *changesModel) fault(t *rapid.T) {
	m.Fault()
	m.forgetHidden(t)
	names := make([]string, modelUsers)
	for i := range names {
		names[i] = fmt.Sprint("u", i)
	}
	read := &store.ChangesRead{Namespace: kit.Namespace, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	if errors.Is(read.Err, store.ErrNotRecorded) {
		m.endFeed()
	} else {
		require.NoError(t, read.Err)
		m.newFeed()
		m.advanceAll(t)
	}
	if m.devices != nil {
		names = append(names, kit.FirstUsers(m.Store)...)
	}
	for i, state := range kit.Lookup(t, m, names...) {
		m.states[names[i]] = state
		if m.devices != nil {
			m.know(names[i], devices.Of(t, m, names[i]))
		}
	}
	m.relearn(t)
	m.unrecorded = true // users who were grey may be unknown
	for _, r := range m.readers {
		r.lossy, r.inexact = true, true
	}
}
