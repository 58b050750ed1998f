package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	keepAliveTimeout = 5 * time.Second
	// keepAliveGrid has the keepalives of parties due at the same times, so that one call to the store is for many: it
	// costs as much as the keepalives of dozens of parties.
	keepAliveGrid  = 250 * time.Millisecond
	shortestPeriod = 100 * time.Millisecond // between two keepalives of a party
	firstKeepAlive = time.Second            // after a connection learned of an active call, at most
)

// keepAlive notes in the store that users who are connected to this server take part in their calls. From time to time
// it reads their calls again, because signals can be lost: calls that have changed are signalled again, and so are
// those whose other party is not active.
type keepAlive struct {
	*Manager
	wake store.Waker

	mu       sync.Mutex
	parties  map[lastseen.UserKey]*party
	due      schedule[lastseen.UserKey]
	warnings warnings
}

// party is a user in a call. Times are monotonic.
type party struct {
	call    lastseen.Call // without App
	timeout time.Duration // of new calls, when the party was followed first; that of the call may differ
	active  time.Duration // when the party was last active, and the store knows it
	expires time.Duration // when the call will not expire before; 0 if that is not known
}

// Follow keeps a user active in a call, as long as a connection of the user to this server is. Call it when such a
// connection learns of the call, and each time that the call has changed. A call that has ended is not followed any
// longer.
func (k *Manager) Follow(namespace, user string, c lastseen.Call) {
	h, p := k.keepAlive, lastseen.UserKey{Namespace: namespace, User: user}
	c.App = ""
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.parties[p]
	known := old != nil && old.call.ID == c.ID
	if known && !c.Replaces(old.call) || old != nil && !known && old.call.Created > c.Created {
		return
	}
	if c.State.Over() || c.Party(p.User) == "" {
		if known {
			h.drop(p)
		}
		return
	}
	now, timeout := h.monotonic(), h.Timeout(p.Namespace)
	if known {
		if old.call.State != c.State {
			h.due.advance(p, now+min(firstKeepAlive, timeout/4))
		}
		old.call, old.expires = c, 0
	} else {
		h.parties[p] = &party{call: c, timeout: timeout, active: now - timeout/2} // maybe on a connection
		h.due.set(p, now+min(firstKeepAlive, timeout/4))
	}
	h.wake.Wake()
}

// drop does not follow a user any longer. The caller holds the mutex.
func (h *keepAlive) drop(p lastseen.UserKey) {
	delete(h.parties, p)
	h.due.remove(p)
}

// work sends keepalives for the parties that are due, and returns the time until the next one.
func (h *keepAlive) work(ctx context.Context) time.Duration {
	h.mu.Lock()
	byNamespace := map[string][]lastseen.UserKey{}
	for now := h.monotonic(); ; {
		p, ok := h.due.pop(now)
		if !ok {
			break
		}
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	h.mu.Unlock()
	var batches [][]lastseen.UserKey
	for _, parties := range byNamespace {
		for part := range slices.Chunk(parties, store.MaxCallBatch) {
			batches = append(batches, part)
		}
	}
	each(batches, func(parties []lastseen.UserKey) { h.send(ctx, parties) })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.due.rest(h.monotonic(), longestWait)
}

// send keeps the calls of parties of one namespace alive, and plans when to do that again.
func (h *keepAlive) send(ctx context.Context, parties []lastseen.UserKey) {
	ctx, cancel := context.WithTimeout(ctx, keepAliveTimeout)
	defer cancel()
	began := h.monotonic()
	known, err := h.write(ctx, parties[0].Namespace, began, h.collect(parties))
	if err == nil {
		err = h.check(ctx, parties, known)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warn(ctx, &h.warnings, "cannot record who takes part in calls; trying again", parties[0].Namespace, err)
	now := h.monotonic()
	for _, p := range parties {
		n := h.parties[p]
		switch {
		case n == nil:
		case errors.Is(err, store.ErrNoCalls), err == nil && now > n.active+2*n.timeout: // nobody is connected
			h.drop(p)
		default:
			h.due.advance(p, n.next(now, err != nil, n.active < began))
		}
	}
}

// next returns when the party is active next. The caller holds the mutex.
func (n *party) next(now time.Duration, failed, missed bool) time.Duration {
	period := n.period(now, failed)
	if missed && n.call.State == lastseen.Active && n.expires != 0 {
		period = max(min(period, n.timeout/16), shortestPeriod) // its connection may be active any moment
	}
	return max(now+shortestPeriod, (now + period).Truncate(min(keepAliveGrid, period/4)))
}

// period returns the time until the next keepalive, at most. The caller holds the mutex.
func (n *party) period(now time.Duration, failed bool) time.Duration {
	period := n.timeout / 4
	if n.call.State == lastseen.Active && n.expires != 0 {
		// The other party may not be active, and the timeout of the call may be shorter than that of new ones.
		period = min(period, (n.expires-now)/2)
	}
	if failed {
		period = min(period, retryAfter)
	}
	return max(period, shortestPeriod)
}

// collect returns who was active. What was received longer than half of the timeout ago does not count, so that a party
// that is gone is lost soon, also after the store was away.
func (h *keepAlive) collect(parties []lastseen.UserKey) (active []store.KeepAlive) {
	for _, p := range parties {
		h.mu.Lock()
		n := h.parties[p]
		var device string
		var within time.Duration
		if n != nil {
			device, within = n.call.Device(p.User), min(h.monotonic()-n.active, n.timeout/2)
		}
		h.mu.Unlock()
		if n != nil && h.Active(p.Namespace, p.User, device, within) {
			active = append(active, store.KeepAlive{User: p.User, Device: device})
		}
	}
	return active
}

// write records who was active. It returns for these users whether their call is the one that is known, and has not
// changed.
func (h *keepAlive) write(
	ctx context.Context, namespace string, now time.Duration, active []store.KeepAlive,
) (known map[string]bool, err error) {
	if len(active) == 0 {
		return nil, nil
	}
	result, err := h.store.KeepCallsAlive(ctx, namespace, active)
	if err != nil {
		return nil, err
	}
	h.postprocessor.finish(ctx, namespace, result.Steps)
	known = make(map[string]bool, len(active))
	var again []notice
	h.mu.Lock()
	for i, c := range active {
		n := h.parties[lastseen.UserKey{Namespace: namespace, User: c.User}]
		if n == nil {
			continue
		}
		n.active = now
		found := result.Calls[i]
		known[c.User] = n.call.ID == found.ID && n.call.Version == found.Version
		if known[c.User] {
			again = append(again, n.expire(found.Rest, now)...)
		}
	}
	h.mu.Unlock()
	h.notify(ctx, namespace, again)
	return known, nil
}

// check reads the calls of those parties whose call is another one or has changed, or may have: what is known is of
// those who were active. The call of a party who was not active is read if it could expire soon.
func (h *keepAlive) check(ctx context.Context, parties []lastseen.UserKey, known map[string]bool) error {
	now := h.monotonic()
	h.mu.Lock()
	var users []string
	for _, p := range parties {
		n := h.parties[p]
		same, active := known[p.User]
		if n != nil && !same && (active || n.call.State != lastseen.Active || n.expires < now+n.timeout/2) {
			users = append(users, p.User)
		}
	}
	h.mu.Unlock()
	if len(users) == 0 {
		return nil
	}
	namespace := parties[0].Namespace
	present, err := h.store.Now(ctx)
	if err != nil {
		return err
	}
	calls, err := h.store.ReadCalls(ctx, namespace, nil, users)
	if err != nil {
		return err
	}
	var again []notice
	h.mu.Lock()
	for i, c := range calls {
		p := lastseen.UserKey{Namespace: namespace, User: users[i]}
		again = append(again, h.compare(p, c, c.Expires.Sub(present), now)...)
	}
	h.mu.Unlock()
	h.notify(ctx, namespace, again)
	return nil
}

// notice says that users may not know what became of a call.
type notice struct {
	id    string
	users []string
}

// compare takes over the present call of a party, which expires after some time, and returns who has to be notified.
// The caller holds the mutex.
func (h *keepAlive) compare(p lastseen.UserKey, c lastseen.Call, left, now time.Duration) (again []notice) {
	n := h.parties[p]
	if n == nil || n.call.ID == c.ID && !c.Replaces(n.call) {
		return nil
	}
	if n.call.ID != c.ID {
		again = []notice{{n.call.ID, []string{p.User}}}
		h.drop(p)
		if c.ID != "" {
			again = append(again, notice{c.ID, []string{p.User}})
		}
		return again
	}
	if n.call.Version != c.Version {
		again = append(again, notice{c.ID, []string{p.User}})
	}
	c.App = ""
	n.call = c
	return append(again, n.expire(left, now)...)
}

// expire notes that the call of a party expires after some time, and returns who has to be notified. The caller holds
// the mutex.
func (n *party) expire(left, now time.Duration) []notice {
	n.expires = 0
	if left <= 0 || left > 2*n.timeout {
		return nil // a clock was set: what goes on has time left
	}
	n.expires = now + left
	// A server may not know that it has to keep the call alive.
	if c := n.call; c.State == lastseen.Active && left < n.timeout/4 {
		return []notice{{c.ID, []string{c.From, c.To}}}
	}
	return nil
}

func (h *keepAlive) notify(ctx context.Context, namespace string, notices []notice) {
	each(notices, func(n notice) {
		h.stats.signals.Add(1)
		if err := h.postprocessor.signal(ctx, namespace, Change{ID: n.id, Users: n.users}); err != nil {
			h.logger.Debug("cannot signal a call; trying again", "namespace", namespace, "error", err)
		}
	})
}

// Rest returns for how long a call that a user is followed in goes on at least unless a party acts, as far as the last
// keepalive showed; 0 if that is not known. Until then, a connection of the user need not read the call: the manager
// signals it once it finds that the call has changed.
func (k *Manager) Rest(namespace, user, id string) time.Duration {
	h := k.keepAlive
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.parties[lastseen.UserKey{Namespace: namespace, User: user}]
	if n == nil || n.call.ID != id || n.call.State != lastseen.Active {
		return 0
	}
	return max(0, n.expires-h.monotonic())
}

func (h *keepAlive) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.parties)
}
