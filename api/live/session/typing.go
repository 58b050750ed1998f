package session

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

const (
	maxTypingTo   = 20  // users
	maxTypingIn   = 128 // bytes
	typingExpires = 10 * time.Second
)

// typingBody is the content of the frame typing, and of the signal of a user who types.
type typingBody struct {
	To []string `json:"to"`
	In string   `json:"in"`
}

func (b typingBody) check() error {
	if len(b.To) == 0 {
		return problem.Errorf(problem.InvalidParameter, "to has no users: use 1 to %d.", maxTypingTo)
	}
	if len(b.To) > maxTypingTo {
		return problem.Errorf(problem.TooManyItems, "to has %d users: at most %d are allowed.", len(b.To), maxTypingTo)
	}
	if len(b.In) > maxTypingIn {
		return problem.Errorf(problem.InvalidParameter,
			"in has %d bytes: at most %d are allowed.", len(b.In), maxTypingIn)
	}
	if err := lastseen.CheckText("the field in", b.In); err != nil {
		return problem.From(problem.InvalidParameter, err)
	}
	return request.CheckUsers(b.To, maxTypingTo)
}

// handleTyping sends to the connections of some users that the user of this one types. The response is the same whether
// they have connections or not, and while the user is invisible: then no client gets anything.
func (n *session) handleTyping(f clientFrame) error {
	var body typingBody
	if err := f.decode(&body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	if n.device == nil {
		return errNoUser(f.name)
	}
	s := n.newest.Load()
	err := s.Load.Check(guard.Lookup, "The server is overloaded and drops typing to leave room for pings.")
	if err != nil {
		return err
	}
	if err := n.charge(len(body.To)); err != nil {
		return err
	}
	now, err := s.Store.Now(n.ctx)
	if err != nil {
		return err
	}
	// Each time: another server may have made the user invisible just now.
	availability, err := s.Store.ReadAvailability(n.ctx, n.namespace, n.user, now)
	if err != nil {
		return err
	}
	to, err := s.thoseWhoSee(n.ctx, n.namespace, n.user, body.To)
	if err != nil {
		return err
	}
	// Of an invisible user, for no one: the response then takes as long, also for keys that can only write.
	var t typingBody
	if availability.At(now).Availability != lastseen.Invisible {
		t = typingBody{In: body.In, To: to}
		n.Telemetry.CountSocket(telemetry.TypingSent)
	}
	data, _ := json.Marshal(t) // which has only strings
	n.Signal(n.ctx, store.Signal{Kind: signalTyping, Namespace: n.namespace, User: n.user, Data: data},
		"typing is not shown")
	n.confirm(f.id)
	return nil
}

// thoseWhoSee returns which of some users can see a user, each once. The calls to the store depend only on who is asked
// for. Who the caller is makes no difference: a service that types for a user must not show that user to others.
func (s *Server) thoseWhoSee(ctx context.Context, namespace, user string, others []string) ([]string, error) {
	slices.Sort(others)
	others = slices.Compact(others)
	if !s.Restricted(namespace) {
		return others, nil
	}
	pairs := make([]store.ContactPair, len(others))
	for i, other := range others {
		pairs[i] = store.ContactPair{Owner: user, Contact: other}
	}
	seen, err := audience.AreSeen(ctx, s.Store, namespace, pairs)
	if err != nil {
		return nil, err
	}
	seeing := make([]string, 0, len(others))
	for i, other := range others {
		if seen[i] {
			seeing = append(seeing, other)
		}
	}
	return seeing, nil
}

// deliverTyping sends a frame to the connections of the users that a signal names. They need the rights by which they
// could follow the sender.
func (h *Hub) deliverTyping(signal store.Signal) {
	t, ok := decodeTyping(signal.Data)
	if !ok || signal.User == "" {
		return
	}
	var frame []byte
	for _, user := range t.To {
		for _, n := range h.sessionsOf(lastseen.UserKey{Namespace: signal.Namespace, User: user}) {
			if frame == nil {
				frame = t.frame(signal.User)
			}
			if guard.Read.Check(n.namespace, "", n.currentCaller()) == nil && n.sendSoon(frame) {
				h.Telemetry.CountSocket(telemetry.TypingDelivered)
			}
		}
	}
}

// frame returns the frame for those to whom a user types.
func (b typingBody) frame(user string) []byte {
	text := request.AppendString([]byte(`{"typing":{"user":`), user)
	if b.In != "" {
		text = request.AppendString(append(text, `,"in":`...), b.In)
	}
	text = strconv.AppendInt(append(text, `,"expires_in_ms":`...), typingExpires.Milliseconds(), 10)
	return append(text, '}', '}')
}

// decodeTyping returns the data of a signal. What it returns could have been sent by a client.
func decodeTyping(data []byte) (b typingBody, ok bool) {
	err := json.Unmarshal(data, &b)
	return b, err == nil && b.check() == nil
}
