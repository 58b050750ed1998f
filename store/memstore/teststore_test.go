package memstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

const base lastseen.Instant = 1_700_000_000_000

var (
	busy      = lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "in a meeting"}
	away      = lastseen.AvailabilityState{Availability: lastseen.Away, Until: base + 1000}
	invisible = lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: "not here"}
)

func open(t testing.TB, o Options) *Store {
	t.Helper()
	return opened(t, o, false)
}

// newStore returns an empty store without a journal, in which everything ends with the process.
func newStore(o Options) *Store {
	x := NewTables(o)
	return x.Store(memory{tables: x})
}

// opened opens a store whose writes are staged, or made at once.
func opened(t testing.TB, o Options, staged bool) *Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s := newStore(o)
	if staged {
		s.journal = &stages{memory: memory{tables: s.tables}}
	}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// memory is the journal of a store without one.
type memory struct {
	nothing
	tables *Tables
}

func (memory) Outlasts() bool { return false }

func (m memory) Do(ctx context.Context, w Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.tables.Run(w, m)
}

// stages is a journal that stages each write before it makes it, as one does that must keep changes first.
type stages struct {
	memory
	mu     sync.Mutex // one write at a time
	writes atomic.Int64
}

func (j *stages) Do(ctx context.Context, w Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.tables.mu.RLock()
	closed := j.tables.closed
	j.tables.mu.RUnlock()
	if closed {
		return store.ErrClosed
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes.Add(1)
	staged := j.tables.Stage(j)
	staged.Do(w)
	staged.Make()
	return nil
}

func (*stages) Outlasts() bool { return true }

func ping(t testing.TB, s *Store, user string, at lastseen.Instant) {
	t.Helper()
	kit.Ping(t, s, user, at)
}

// contactsOf returns all contacts of an owner, separated by commas.
func contactsOf(t testing.TB, s *Store, owner string) string {
	t.Helper()
	return strings.Join(contacts.Of(t, s, owner), ",")
}

func recordDevices(t testing.TB, s *Store, batch ...store.DeviceEvent) {
	t.Helper()
	_, err := s.RecordDevices(context.Background(), "chat", time.Minute, batch)
	require.NoError(t, err)
}

type lines struct {
	nothing
	text []string
}

func (l *lines) add(values ...any) { l.text = append(l.text, fmt.Sprintln(values...)) }

func (l *lines) In(namespace string)                          { l.add("in", namespace) }
func (l *lines) Set(namespace, user string, s lastseen.State) { l.add("set", namespace, user, s) }
func (l *lines) SetAvailability(namespace, user string, s lastseen.AvailabilityState) {
	l.add("say", namespace, user, s)
}
func (l *lines) Hide(namespace, user string, h Hidden) { l.add("hide", namespace, user, h) }
func (l *lines) Unlist(namespace string)               { l.add("unlist", namespace) }
func (l *lines) SetDevices(
	namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string,
) {
	l.add("devices", namespace, user, s, d, meta)
}

func (l *lines) ChangeContacts(namespace, owner string, used lastseen.Instant, add, remove []string) {
	l.add("contacts", namespace, owner, used, add, remove)
}

func textOf(x *Tables) []string {
	var all lines
	x.Snapshot().Write(&all, func() bool { return true })
	return all.text
}

func optionsOf(m *kit.Machine) Options { return Options{Now: m.Wall, Monotonic: m.Monotonic} }
