package presence

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// model is a simple store: a map for each namespace, searched from end to end.
type model map[string]map[string]lastseen.State

func (m model) apply(namespace string, batch []store.PresenceEvent, leave bool) []lastseen.State {
	for _, event := range batch {
		if m[namespace] == nil {
			m[namespace] = map[string]lastseen.State{}
		}
		state := lastseen.State{At: event.At, Left: leave}
		m[namespace][event.User] = lastseen.Merge(m[namespace][event.User], state)
	}
	states := make([]lastseen.State, len(batch))
	for i, event := range batch {
		states[i] = m[namespace][event.User]
	}
	return states
}

func (m model) list(namespace string, q store.ListQuery) []store.Record {
	var records []store.Record
	for user, state := range m[namespace] {
		record := store.Record{User: user, State: state}
		inRange := slices.ContainsFunc(q.Ranges, func(r lastseen.Range) bool { return r.Contains(state) })
		if inRange && (q.After == nil || q.Order.Compare(*q.After, record) < 0) {
			records = append(records, record)
		}
	}
	slices.SortFunc(records, q.Order.Compare)
	return records[:min(q.Limit, len(records))]
}

func (m model) newest(namespace string) (newest lastseen.Instant) {
	for _, state := range m[namespace] {
		newest = max(newest, state.At)
	}
	return newest
}

func (m model) namespaces(after string, limit int) (infos []store.NamespaceInfo) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name > after && len(infos) < limit {
			infos = append(infos, store.NamespaceInfo{Name: name, Newest: m.newest(name)})
		}
	}
	return infos
}

// trim deletes users seen before the cutoff.
func (m model) trim(namespace string, cutoff lastseen.Instant) (trimmed int) {
	before := len(m[namespace])
	maps.DeleteFunc(m[namespace], func(_ string, s lastseen.State) bool { return s.At < cutoff })
	return before - len(m[namespace])
}

// older returns the users seen before the cutoff, and whether there are others.
func (m model) older(namespace string, cutoff lastseen.Instant) (users []string, others bool) {
	for user, state := range m[namespace] {
		if state.At < cutoff {
			users = append(users, user)
		} else {
			others = true
		}
	}
	return users, others
}

// The model test draws from few names and few instants, so that everything collides. The instants are a few
// milliseconds in each of three hours, and trimming cuts between these, because a store goes by its own clock.
var (
	drawNamespace = rapid.SampledFrom([]string{"a", "b"})
	drawInstant   = rapid.Custom(func(t *rapid.T) lastseen.Instant {
		return drawHour.Draw(t, "hour") + lastseen.Instant(rapid.IntRange(0, 7).Draw(t, "ms"))
	})
	drawHour = rapid.Custom(func(t *rapid.T) lastseen.Instant {
		return kit.Base + 60*kit.Minute*lastseen.Instant(rapid.IntRange(0, 2).Draw(t, "h"))
	})
	drawEvent = rapid.Custom(func(t *rapid.T) store.PresenceEvent {
		return store.PresenceEvent{User: kit.DrawUser.Draw(t, "user"), At: drawInstant.Draw(t, "at")}
	})
	drawRange = rapid.Custom(func(t *rapid.T) lastseen.Range {
		from, to := drawInstant.Draw(t, "from"), drawInstant.Draw(t, "to")
		return lastseen.Range{From: min(from, to), To: max(from, to), Left: rapid.Bool().Draw(t, "left")}
	})
	drawRecord = rapid.Custom(func(t *rapid.T) store.Record {
		state := lastseen.State{At: drawInstant.Draw(t, "at"), Left: rapid.Bool().Draw(t, "left")}
		return store.Record{User: kit.DrawUser.Draw(t, "user"), State: state}
	})
)

// testModel runs random operations on a store and on the model, and compares all results. The stores of all runs are
// closed with the test.
func testModel(t *testing.T, open kit.Open) {
	rapid.Check(t, func(rt *rapid.T) {
		s, m, ctx := open(t), model{}, context.Background()
		write := func(leave bool) func(*rapid.T) {
			return func(t *rapid.T) {
				namespace, batch := drawNamespace.Draw(t, "ns"), rapid.SliceOfN(drawEvent, 1, 8).Draw(t, "batch")
				send := s.Ping
				if leave {
					send = s.Leave
				}
				states, err := send(ctx, namespace, batch)
				require.NoError(t, err)
				require.Equal(t, m.apply(namespace, batch, leave), states)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ping":  write(false),
			"leave": write(true),
			"forget": func(t *rapid.T) {
				namespace, user := drawNamespace.Draw(t, "ns"), kit.DrawUser.Draw(t, "user")
				require.NoError(t, s.Forget(ctx, namespace, user))
				delete(m[namespace], user)
			},
			"trim": func(t *rapid.T) {
				namespace, cutoff := drawNamespace.Draw(t, "ns"), drawHour.Draw(t, "cutoff")+30*kit.Minute
				require.Equal(t, store.TrimResult{Deleted: m.trim(namespace, cutoff)},
					kit.Trim(t, s, namespace, cutoff, true))
			},
			"trim but not all": func(t *rapid.T) { trimSome(t, s, m) },
			"remove empty": func(t *rapid.T) {
				namespace := drawNamespace.Draw(t, "ns")
				users, exists := m[namespace]
				require.Equal(t, exists && len(users) == 0, kit.RemoveEmpty(t, s, namespace))
				if len(users) == 0 {
					delete(m, namespace)
				}
			},
			"delete": func(t *rapid.T) {
				namespace := drawNamespace.Draw(t, "ns")
				require.NoError(t, s.DeleteNamespace(ctx, namespace))
				delete(m, namespace)
			},
			"": func(t *rapid.T) { compareReads(t, s, m) },
		})
	})
}

// trimSome trims without All. Which users a store holds back depends on its shards, but it reports that it does, and
// deletes none if the namespace would be empty.
func trimSome(t *rapid.T, s store.Store, m model) {
	namespace, cutoff := drawNamespace.Draw(t, "ns"), drawHour.Draw(t, "cutoff")+30*kit.Minute
	old, others := m.older(namespace, cutoff)
	result := kit.Trim(t, s, namespace, cutoff, false)
	require.Equal(t, len(old)-result.Deleted > 0, result.Held)
	if !others {
		require.Zero(t, result.Deleted)
	}
	states, _, err := s.Describe(context.Background(), namespace, old)
	require.NoError(t, err)
	for i, user := range old {
		if !states[i].Known() {
			delete(m[namespace], user)
			result.Deleted--
		}
	}
	require.Zero(t, result.Deleted)
}

// compareReads draws the arguments of every read and compares the results.
func compareReads(t *rapid.T, s store.Store, m model) {
	ctx, namespace := context.Background(), drawNamespace.Draw(t, "ns")
	asked := rapid.SliceOfN(kit.DrawUser, 1, 5).Draw(t, "users")
	states, _, err := s.Describe(ctx, namespace, asked)
	require.NoError(t, err)
	for i, user := range asked {
		require.Equal(t, m[namespace][user], states[i])
	}

	order := rapid.SampledFrom([]store.Order{store.Newest, store.Oldest}).Draw(t, "order")
	q := store.ListQuery{Order: order, Limit: rapid.IntRange(1, 12).Draw(t, "limit")}
	for _, half := range []bool{false, true} {
		if r := drawRange.Draw(t, "range"); rapid.Bool().Draw(t, "half") {
			q.Ranges = append(q.Ranges, lastseen.Range{From: r.From, To: r.To, Left: half})
		}
	}
	if rapid.Bool().Draw(t, "resume") {
		after := drawRecord.Draw(t, "after")
		q.After = &after
	}
	page, err := s.List(ctx, namespace, q)
	require.NoError(t, err)
	require.Equal(t, append([]store.Record{}, m.list(namespace, q)...), append([]store.Record{}, page...), "%+v", q)

	r := drawRange.Draw(t, "count")
	counts, err := s.Count(ctx, namespace, []lastseen.Range{r})
	require.NoError(t, err)
	require.Len(t, m.list(namespace, store.ListQuery{Ranges: []lastseen.Range{r}, Limit: 100}), int(counts[0]))

	newest, err := s.Newest(ctx, namespace)
	require.NoError(t, err)
	require.Equal(t, m.newest(namespace), newest)
	infos, err := s.Namespaces(ctx, rapid.SampledFrom([]string{"", "a"}).Draw(t, "after"), 5)
	require.NoError(t, err)
	for _, info := range infos {
		require.Equal(t, m.newest(info.Name), info.Newest)
		require.Contains(t, m, info.Name)
	}
	require.Equal(t, m.namespaces("", 5), kit.Namespaces(t, s, 5))
}
