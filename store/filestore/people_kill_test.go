package filestore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// sayForever has users say something again and again, numbered in the note. Users with an odd number become invisible
// after that.
func sayForever(s *Store, out *crashLog, at lastseen.Instant) {
	ctx := context.Background()
	for n := 0; ; n++ {
		user := fmt.Sprint("says-", n%10)
		said := lastseen.Said{Availability: lastseen.Busy, Note: strconv.Itoa(n)}
		_, err := s.SetAvailability(ctx, "said", user, said, at)
		if n%2 == 1 {
			said.Availability = lastseen.Invisible
			_, hideErr := s.SetAvailability(ctx, "said", user, said, at)
			err = errors.Join(err, hideErr)
		}
		if n%100 == 99 {
			once := fmt.Sprint("once-", at, "-", n)
			_, onceErr := s.SetAvailability(ctx, "said", once, said, at)
			err = errors.Join(err, onceErr, s.Forget(ctx, "said", once))
		}
		if err != nil {
			panic(err)
		}
		out.line("said %s %d", user, n)
	}
}

func (h *events) addSaid(t *testing.T, line string) {
	t.Helper()
	var user string
	var n int
	_, err := fmt.Sscanf(line, "said %s %d", &user, &n)
	require.NoError(t, err)
	if h.said == nil {
		h.said = map[string]int{}
	}
	h.said[user] = n
}

// requireSaid checks that the users say what they said last, or after that, and that users who were forgotten say
// nothing.
func (h *events) requireSaid(t *testing.T, s *Store, some bool) {
	t.Helper()
	require.Equal(t, some, len(h.said) > 0, "killed before anything was said")
	for user, last := range h.said {
		said, err := s.ReadAvailability(context.Background(), "said", user, base)
		require.NoError(t, err)
		n, err := strconv.Atoi(said.Note)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last, user)
		seen := s.index.people("said").saidOf(user)
		if n%2 == 0 {
			require.Equal(t, lastseen.Busy, said.Availability)
			require.Equal(t, said, seen)
		} else if said.Availability != lastseen.Busy { // it was killed between the calls
			require.Equal(t, lastseen.Invisible, said.Availability)
			require.Equal(t, lastseen.Said{Availability: lastseen.Busy, Note: said.Note}, seen)
		}
	}
	if some {
		people := s.index.people("said")
		// Ten users say something, five of them are invisible, and each kill can leave one that was not forgotten yet.
		require.LessOrEqual(t, people.said.Len()+people.hidden.Len(), 20)
	}
}
