package browser

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/store"
)

// crowdIs checks that a page shows these users of the crowd with a status, and all others with another one: see
// [crowdScript].
func crowdIs(t *testing.T, b *browser, status, numbers, others string) {
	t.Helper()
	const with = "users.filter(user => client.get(user).status == %q)"
	b.Do(t, until(fmt.Sprintf(with+".map(user => user.split(' ')[1]) == %q", status, numbers)),
		until(fmt.Sprintf(with+".length == users.length - "+with+".length", others, status)),
		until("users.every(user => statuses[user] == client.get(user).status)"))
}

// writeCall is Ping or Leave of a store.
type writeCall func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error)

// crowdDo has users of the crowd ping or leave, by their numbers; without numbers all of them do, at once.
func (s *scripted) crowdDo(t *testing.T, b *browser, do writeCall, numbers ...int) {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	var batch []store.PresenceEvent
	for i, user := range testbrowser.Evaluate[[]string](t, b, "users") {
		if numbers == nil || slices.Contains(numbers, i) {
			batch = append(batch, store.PresenceEvent{User: user, At: now})
		}
	}
	_, err = do(t.Context(), "chat", batch)
	require.NoError(t, err)
}

// TestScriptCutInFirstParts: a connection that is cut between the parts of a response has the page ask for all users of
// that response again. Those who changed before and after they were received are right.
func TestScriptCutInFirstParts(t *testing.T) {
	t.Parallel()
	for _, part := range []int{1, 3, 5} {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			b := testbrowser.Open(t, s.pages)
			s.cutAfterPart(part)
			s.load(t, b, "", "Math.random = () => 0.01;"+crowdScript)
			s.crowdDo(t, b, s.Ping, 3, 2300)
			s.untilCut(t, 1)
			s.crowdDo(t, b, s.Ping, 5, 999, 2399)
			crowdIs(t, b, "green", "3,5,999,2300,2399", "grey")
			s.crowdDo(t, b, s.Ping, 0, 1500)
			crowdIs(t, b, "green", "0,3,5,999,1500,2300,2399", "grey")
			require.Equal(t, 2, s.connects())
		})
	}
}

// TestScriptCutInLaterParts: the same for what changed while the page had no connection, and for what a server sends
// again because it cannot continue.
func TestScriptCutInLaterParts(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", "Math.random = () => 0.01;"+crowdScript)
	b.Do(t, until("count('grey') == 2400"))

	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	s.untilFollowed(t, 0, 0)
	s.crowdDo(t, b, s.Ping)
	s.cutAfterPart(2)
	s.setAnswer(nil)
	s.untilCut(t, 1)
	s.crowdDo(t, b, s.Leave, 0, 480, 2001)
	crowdIs(t, b, "grey", "0,480,2001", "green")

	s.cutAfterPart(3)
	require.NoError(t, s.DeleteNamespace(t.Context(), "chat"))
	s.crowdDo(t, b, s.Ping, 9)
	s.untilCut(t, 2)
	s.crowdDo(t, b, s.Ping, 10, 2002)
	crowdIs(t, b, "green", "9,10,2002", "grey")
	s.crowdDo(t, b, s.Leave)
	crowdIs(t, b, "green", "", "grey")
}
