package api

import (
	"context"
	"errors"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// endAgain ends calls of a user that go on although a client of the user was sent that they are over: the store has
// lost their end, as Redis does that fails over. Otherwise they would go on for as long as both parties are connected,
// and the clients, which show no call, would not end them. Calls has them as they are then, except for those that do
// not exist any longer, which it returns. The error is the last one.
func (s *server) endAgain(
	ctx context.Context, p lastseen.UserKey, calls []lastseen.Call, sessions []*session,
) (gone []string, err error) {
	for i, c := range calls {
		if c.State.Over() || !slices.ContainsFunc(sessions, func(n *session) bool { return n.knowsOver(c.ID) }) {
			continue
		}
		act := store.CallAct{ID: c.ID, User: p.User, Action: lastseen.End}
		step, finish, failure := s.Keeper.Act(ctx, p.Namespace, act)
		finish()
		switch {
		case errors.Is(failure, store.ErrCallNotFound):
			gone = append(gone, c.ID)
		case failure != nil:
			err = failure
		default:
			calls[i] = step.Call
		}
	}
	return gone, err
}

// knowsOver reports whether the client knows that a call is over.
func (n *session) knowsOver(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known != nil && slices.ContainsFunc(n.known.calls, func(c lastseen.Call) bool {
		return c.ID == id && c.State.Over()
	})
}
