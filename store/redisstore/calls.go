package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file keeps the calls of users: see docs/decisions/calls.md.

// callRefusal returns the error for a refusal of callstart.lua; nil for none.
func callRefusal(refusal any) error {
	switch refusal {
	case "":
		return nil
	case "caller busy":
		return store.ErrCallerBusy
	case "callee busy":
		return store.ErrCalleeBusy
	case "callee unavailable":
		return store.ErrCalleeUnavailable
	case "too many":
		return store.ErrTooManyCalls
	case "reused":
		return store.ErrCallKeyReused
	}
	return fmt.Errorf("unexpected script reply: %v is not a refusal", refusal)
}

// nonce returns a random text that is in a step, so that the step is done once if the client sends it again.
func nonce() string { return rand.Text()[:12] }

// StartCall implements [store.Calls]. The namespace is listed before the call begins, and again if it is the only one.
// A call to a callee who is unavailable does not begin: the script only looks for one with the same key.
func (s *Store) StartCall(ctx context.Context, name string, n store.NewCall) (store.CallStep, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return store.CallStep{}, err
	}
	defer cancel()
	if !n.CalleeUnavailable {
		if s.admit(ctx, []*resolvedNamespace{c}); c.err != nil {
			return store.CallStep{}, c.err
		}
		if err := s.listCalls(ctx, c.namespace); err != nil {
			return store.CallStep{}, err
		}
	}
	reply, err := s.runCalls(redisclient.Confirmed(ctx), c.namespace, scripts.CallStart, 3,
		n.ID, nonce(), n.From, n.To, n.FromDevice, max(1, n.Ring.Milliseconds()), max(1, n.Timeout.Milliseconds()),
		n.Shown, n.CalleeHidden, n.App, n.Key, n.Digest, n.CalleeUnavailable)
	if err != nil {
		s.metaCache.recheck(name) // see record
		return store.CallStep{}, err
	}
	if refusal := callRefusal(reply[0]); refusal != nil {
		return store.CallStep{}, refusal
	}
	step, err := readCallStep(reply[2])
	if fresh := reply[1] == int64(1); err == nil && fresh {
		err = s.keepCalls(ctx, c)
	}
	return step, err
}

// keepCalls makes sure that a namespace exists and is listed in which the only call has just begun: another server may
// have removed it since that was read.
func (s *Store) keepCalls(ctx context.Context, c *resolvedNamespace) error {
	s.metaCache.setCalls(c.name, false)
	if err := s.listCalls(ctx, c.namespace); err != nil {
		return err
	}
	s.register(ctx, []*resolvedNamespace{c}, 0)
	return c.err
}

// StepCall implements [store.Calls].
func (s *Store) StepCall(ctx context.Context, name string, a store.CallAct) (store.CallStep, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return store.CallStep{}, err
	}
	defer cancel()
	reply, err := s.runCalls(redisclient.Confirmed(ctx), c.namespace, scripts.CallStep, 2,
		a.ID, nonce(), a.User, a.Device, string(a.Action), a.App)
	if err != nil {
		return store.CallStep{}, err
	}
	if len(reply) < 2 {
		return store.CallStep{}, store.ErrCallNotFound
	}
	_ = s.listCalls(ctx, c.namespace) // if it fails, the next call writes it
	s.copyInCalls(ctx, c, reply[1])
	return readCallStep(reply[0])
}

// KeepCallsAlive implements [store.Calls].
func (s *Store) KeepCallsAlive(ctx context.Context, name string, active []store.KeepAlive) (store.KeptAlive, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return store.KeptAlive{}, err
	}
	defer cancel()
	if len(active) == 0 {
		return store.KeptAlive{}, nil
	}
	args := make([]any, 0, 2*len(active))
	for i := range active {
		args = append(args, &active[i].User, &active[i].Device)
	}
	reply, err := s.runCalls(ctx, c.namespace, scripts.CallKeepAlive, 3, args...)
	if err != nil {
		return store.KeptAlive{}, err
	}
	if len(reply) == 0 {
		return store.KeptAlive{Calls: make([]store.AliveCall, len(active))}, nil
	}
	_ = s.listCalls(ctx, c.namespace) // if it fails, the next call writes it
	s.copyInCalls(ctx, c, reply[2])
	return readKeepAlive(reply, len(active))
}

// ExpireCalls implements [store.Calls]. It also copies what other servers have left in the outbox.
func (s *Store) ExpireCalls(ctx context.Context, name string) (store.ExpiredCalls, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return store.ExpiredCalls{}, err
	}
	defer cancel()
	reply, err := s.runCalls(ctx, c.namespace, scripts.CallExpire, 5)
	if err != nil {
		return store.ExpiredCalls{}, err
	}
	expired, err := readExpired(reply)
	switch copied := s.copyInCalls(ctx, c, reply[4]); {
	case err != nil:
	case !copied:
		expired.Next = max(expired.Next, copyPause)
	case expired.Kept == 0 && expired.Next > 0:
		s.unlistCalls(ctx, c.namespace)
	}
	return expired, err
}

// ReadCalls implements [store.Calls].
func (s *Store) ReadCalls(ctx context.Context, name string, ids, users []string) ([]lastseen.Call, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return nil, err
	}
	defer cancel()
	args := make([]any, 1, 1+len(ids)+len(users))
	args[0] = len(ids)
	for _, text := range slices.Concat(ids, users) {
		args = append(args, text)
	}
	calls, err := s.readCalls(ctx, c.namespace, args)
	if err == nil && calls == nil {
		calls = make([]lastseen.Call, len(ids)+len(users))
	}
	if err == nil && len(calls) != len(ids)+len(users) {
		return nil, fmt.Errorf("unexpected script reply of %d calls", len(calls))
	}
	return calls, err
}

// forgetCalls deletes the calls of a user. Ongoing calls end.
func (s *Store) forgetCalls(ctx context.Context, ns namespace, user string) error {
	if !ns.hasSideKeys() {
		return nil
	}
	err := s.client.ZScore(ctx, s.keys.calling(), ns.name).Err()
	if errors.Is(err, redis.Nil) {
		return nil // the namespace has no calls
	} else if err != nil {
		return redisclient.Translate(err)
	}
	c := &resolvedNamespace{namespace: ns}
	if s.verify(ctx, []*resolvedNamespace{c}); c.err != nil {
		return c.err
	}
	for more := true; more; {
		reply, err := s.runCalls(redisclient.Confirmed(ctx), ns, scripts.CallForget, 2, user)
		if err != nil || len(reply) == 0 {
			return err
		}
		more = reply[0] == int64(1)
		s.copyInCalls(ctx, c, reply[1])
	}
	return nil
}

// deleteCalls deletes all calls of a namespace, each key for itself, and removes it from the list first: see
// unlistCalls. When they expire goes first, and the calls go last: of a call that begins in between, nothing is left
// without a due time, at which ExpireCalls deletes it.
func (s *Store) deleteCalls(ctx context.Context, ns namespace) error {
	if err := s.client.ZRem(ctx, s.keys.calling(), ns.name).Err(); err != nil {
		return redisclient.Translate(err)
	}
	pipe, due := s.client.Pipeline(), ns.callKey(due)
	pipe.Unlink(ctx, due)
	for _, key := range slices.Backward(ns.callKeys()) { // which begin with the calls
		if key != due {
			pipe.Unlink(ctx, key)
		}
	}
	_, err := pipe.Exec(ctx)
	return redisclient.Translate(err)
}

// CallNamespaces implements [store.Store].
func (s *Store) CallNamespaces(ctx context.Context, after string, limit int) ([]string, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.namesAfter(ctx, s.keys.calling(), after, limit)
}

// The words of keys that are used besides scripts. The first exists while calls are kept, the second has those that go
// on, and the third has the users who have to be copied.
const kept, due, outbox = "calls", "callsdue", "calloutbox"

// callKey returns the key of the calls of a namespace with a word, in the slot of its first shard.
func (n namespace) callKey(word string) string { return n.namedKey(word, n.shard(0)) }

// callKeys returns the keys of the calls of a namespace, as scripts take them: see calls.lua.
func (n namespace) callKeys() []string {
	words := []string{kept, "callapps", due, "callsover", "callusers", outbox, "callkeys", "callindex"}
	for i, word := range words {
		words[i] = n.callKey(word)
	}
	return words
}

// runCalls runs a script of calls, and returns its reply without the first element: a call that another program wrote,
// which is logged. The reply has n elements more, or none: then no call is kept, see sendCalls, or the call is not
// found.
func (s *Store) runCalls(ctx context.Context, ns namespace, script *redis.Script, n int, args ...any) ([]any, error) {
	cmd, err := s.sendCalls(ctx, ns, script, args)
	if err != nil || cmd == nil {
		return nil, err
	}
	reply, err := redisclient.Slice(cmd.Val(), -1)
	if err != nil || len(reply) != 1 && len(reply) != n+1 {
		return nil, fmt.Errorf("unexpected script reply %T of %d elements instead of %d", cmd.Val(), len(reply), n+1)
	}
	if reply[0] != nil {
		s.warnOnce(ns, "calls", "a call cannot be read: it counts as none", "call", reply[0])
	}
	return reply[1:], nil
}

// sendCalls runs a script of calls. For half of the time, it repeats what Redis refuses while the keys move to another
// node of a Cluster. The reply is nil if no call is kept then and the script needs one.
func (s *Store) sendCalls(ctx context.Context, ns namespace, script *redis.Script, args []any) (*redis.Cmd, error) {
	keys := ns.callKeys()
	waiting, cancel := context.WithTimeout(ctx, s.client.RepeatTime(ctx))
	defer cancel()
	for {
		cmd := s.client.RunEach(ctx,
			[]redisclient.Call{{Key: keys[0], Others: keys[1:], Args: args, Script: script}})[0]
		if !redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") {
			return cmd, redisclient.Translate(cmd.Err())
		}
		switch script {
		case scripts.CallRead, scripts.CallStep, scripts.CallKeepAlive, scripts.CallForget:
			if n, err := s.client.Exists(ctx, keys[0]).Result(); err == nil && n == 0 {
				return nil, nil
			}
		}
		if !store.Pause(waiting, redisclient.RepeatPause) {
			return nil, redisclient.Translate(cmd.Err())
		}
	}
}

// listCalls has CallNamespaces return a namespace. It writes once in each round: in a Cluster, the list can be lost
// while the calls are not.
func (s *Store) listCalls(ctx context.Context, ns namespace) error {
	if last, _ := s.metaCache.load(ns.name); last.calls {
		return nil
	}
	if err := s.client.ZAdd(ctx, s.keys.calling(), redis.Z{Member: ns.name}).Err(); err != nil {
		return redisclient.Translate(err)
	}
	s.metaCache.setCalls(ns.name, true)
	return nil
}

// anyOngoing reports whether a namespace has an ongoing call.
func (s *Store) anyOngoing(ctx context.Context, ns namespace) (bool, error) {
	n, err := s.client.ZCount(ctx, ns.callKey(due), "-inf", "(inf").Result()
	return n > 0, redisclient.Translate(err)
}

// unlistCalls removes a namespace from the list that has no calls. Another server may begin one at any point: if none
// went on before, it adds the namespace again after that. It is only tidying: errors do no harm.
func (s *Store) unlistCalls(ctx context.Context, ns namespace) {
	removed, err := s.client.ZRem(ctx, s.keys.calling(), ns.name).Result()
	if err != nil || removed == 0 {
		return
	}
	s.metaCache.setCalls(ns.name, false)
	pipe := s.client.Pipeline()
	cmds := []*redis.IntCmd{pipe.Exists(ctx, ns.callKey(kept)), pipe.Exists(ctx, ns.callKey(outbox))}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	if n, err := redisclient.Sum(cmds); err != nil || n > 0 {
		_ = s.listCalls(ctx, ns)
	}
}
