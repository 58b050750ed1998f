package session

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

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

// typingBody is the content of the frame typing.
type typingBody struct {
	To []string `json:"to"`
	In string   `json:"in"`
}

// typing is what the signal of a user who types carries.
type typing struct {
	in string
	to []string
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
	said, err := s.Store.ReadAvailability(n.ctx, n.namespace, n.user, now)
	if err != nil {
		return err
	}
	to, err := s.thoseWhoSee(n.ctx, n.namespace, n.user, body.To)
	if err != nil {
		return err
	}
	var t typing // of an invisible user, for no one: the response then takes as long, also for keys that can only write
	if said.At(now).Availability != lastseen.Invisible {
		t = typing{in: body.In, to: to}
		n.Telemetry.CountSocket(telemetry.TypingSent)
	}
	n.Signal(n.ctx, store.Signal{Kind: signalTyping, Namespace: n.namespace, User: n.user, Data: t.encode()},
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
	for _, user := range t.to {
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
func (t typing) frame(user string) []byte {
	b := request.AppendString([]byte(`{"typing":{"user":`), user)
	if t.in != "" {
		b = request.AppendString(append(b, `,"in":`...), t.in)
	}
	b = strconv.AppendInt(append(b, `,"expires_in_ms":`...), typingExpires.Milliseconds(), 10)
	return append(b, '}', '}')
}

// encode returns the data of the signal: the place and the users, each after its length.
func (t typing) encode() (b []byte) {
	for _, text := range append([]string{t.in}, t.to...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}

// decodeTyping is the reverse of encode. What it returns could have been sent by a client.
func decodeTyping(b []byte) (t typing, ok bool) {
	var texts []string
	for len(b) > 0 {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return t, false
		}
		texts = append(texts, string(b[n:n+int(length)])) //nolint:gosec // it is at most the length of b
		b = b[n+int(length):]                             //nolint:gosec // the same
	}
	if len(texts) == 0 {
		return t, false
	}
	body := typingBody{In: texts[0], To: texts[1:]}
	return typing{body.In, body.To}, body.check() == nil
}
