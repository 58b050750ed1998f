package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func present(user string, at lastseen.Instant) store.Record {
	return store.Record{User: user, State: lastseen.State{At: at}}
}

func left(user string, at lastseen.Instant) store.Record {
	return store.Record{User: user, State: lastseen.State{At: at, Left: true}}
}

func TestOrder(t *testing.T) {
	newest := []store.Record{
		present("a", 9), left("A", 5), left("a", 5), left("b", 5), present("b", 5), present("aa", 5), present("a", 5),
		left("z", 4),
	}
	for i, a := range newest {
		for j, b := range newest {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = +1
			}
			require.Equal(t, want, store.Newest.Compare(a, b), "%v, %v", a, b)
			require.Equal(t, -want, store.Oldest.Compare(a, b), "%v, %v", a, b)
		}
	}
}

func drawRecord(t *rapid.T, name string) store.Record {
	user := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, name)
	at := lastseen.Instant(rapid.IntRange(1, 6).Draw(t, name+" at"))
	return store.Record{User: user, State: lastseen.State{At: at, Left: rapid.Bool().Draw(t, name+" left")}}
}

// TestResume: what is after the place stays in the range; what is before it leaves, but for users of
// the boundary millisecond when the range is tied.
func TestResume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place, record := drawRecord(t, "place"), drawRecord(t, "record")
		from := lastseen.Instant(rapid.IntRange(1, 6).Draw(t, "from"))
		length := lastseen.Instant(rapid.IntRange(0, 5).Draw(t, "length"))
		r := lastseen.Range{From: from, To: from + length, Left: record.Left}
		q := store.ListQuery{Order: store.Order(rapid.IntRange(0, 1).Draw(t, "order")), After: &place}
		rest, tied, ok := q.Resume(r)
		kept := ok && rest.Contains(record.State)
		after := q.Order.Compare(record, place) > 0
		switch {
		case !r.Contains(record.State):
			require.False(t, kept)
		case after:
			require.True(t, kept)
		default:
			require.Equal(t, tied && record.At == place.At, kept)
		}
		require.True(t, !tied || record.Left == place.Left, "only the place's own half is tied")
	})
	r := lastseen.Range{From: 1, To: 5}
	rest, tied, ok := store.ListQuery{}.Resume(r)
	require.Equal(t, r, rest)
	require.False(t, tied)
	require.True(t, ok)
}

// slice is a source that ends, or fails.
type slice struct {
	records []store.Record
	err     error
}

func (s *slice) Next() (store.Record, bool, error) {
	if len(s.records) == 0 {
		return store.Record{}, false, s.err
	}
	r := s.records[0]
	s.records = s.records[1:]
	return r, true, nil
}

func TestMerge(t *testing.T) {
	sources := func() []store.Source {
		return []store.Source{
			&slice{records: []store.Record{present("c", 9), present("a", 3)}},
			&slice{},
			&slice{records: []store.Record{left("b", 9), left("c", 3), left("d", 1)}},
		}
	}
	all := []store.Record{left("b", 9), present("c", 9), present("a", 3), left("d", 1)}
	for limit := 1; limit < 6; limit++ {
		page, err := store.Merge(store.Newest, limit, sources()...)
		require.NoError(t, err)
		require.Equal(t, all[:min(limit, len(all))], page,
			"c moved while the sources were read: only the newest counts")
	}
	full := &slice{records: []store.Record{present("b", 2), present("a", 1)}, err: errors.New("asked too far")}
	page, err := store.Merge(store.Newest, 2, full)
	require.NoError(t, err, "a full page needs nothing more, and asking again may cost a round trip")
	require.Equal(t, []store.Record{present("b", 2), present("a", 1)}, page)
	page, err = store.Merge(store.Newest, 5)
	require.NoError(t, err)
	require.Empty(t, page)
	broken := errors.New("broken")
	for _, s := range []*slice{{err: broken}, {records: []store.Record{present("x", 1)}, err: broken}} {
		_, err := store.Merge(store.Newest, 6, append(sources(), s)...)
		require.ErrorIs(t, err, broken, "half an answer is none")
	}
}

// TestMayBeDone checks that a write is only known to be undone if its error says so.
func TestMayBeDone(t *testing.T) {
	for _, err := range []error{
		nil, store.ErrUnavailable, context.Canceled, fmt.Errorf("ping: %w", context.DeadlineExceeded),
	} {
		require.True(t, store.MayBeDone(err), "%v", err)
	}
	for _, err := range []error{store.ErrFull, store.ErrOverloaded, store.ErrNamespaceLimit, store.ErrClosed} {
		require.False(t, store.MayBeDone(err), "%v", err)
	}
}
