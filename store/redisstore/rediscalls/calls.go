// Package rediscalls keeps the calls of users in Redis, for package redisstore. See docs/decisions/calls.md.
package rediscalls

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Calls keeps calls. It implements the methods of [store.Calls] but for CallNamespaces. A store that embeds it has its
// methods, so what is not part of the contract is a function.
type Calls struct {
	client *redisclient.Client
	listed string // key of the list of namespaces with calls
	open   Open
}

// New returns the calls in a Redis. The list of namespaces with calls has the key listed.
func New(client *redisclient.Client, listed string, open Open) *Calls {
	return &Calls{client, listed, open}
}

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
func (s *Calls) StartCall(ctx context.Context, name string, n store.NewCall) (store.CallStep, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return store.CallStep{}, err
	}
	defer cancel()
	if !n.CalleeUnavailable {
		if err := ns.Admit(ctx); err != nil {
			return store.CallStep{}, err
		}
		if err := s.list(ctx, ns); err != nil {
			return store.CallStep{}, err
		}
	}
	reply, err := s.run(redisclient.Confirmed(ctx), ns, scripts.CallStart, 3,
		n.ID, nonce(), n.From, n.To, n.FromDevice, max(1, n.Ring.Milliseconds()), max(1, n.Timeout.Milliseconds()),
		n.Shown, n.CalleeHidden, n.App, n.Key, n.Digest,
		n.CalleeUnavailable)
	if err != nil {
		ns.Recheck() // see record
		return store.CallStep{}, err
	}
	if refusal := callRefusal(reply[0]); refusal != nil {
		return store.CallStep{}, refusal
	}
	step, err := readCallStep(reply[2])
	if fresh := reply[1] == int64(1); err == nil && fresh {
		err = s.keep(ctx, ns)
	}
	return step, err
}

// keep makes sure that a namespace exists and is listed in which the only call has just begun: another server may have
// removed it since that was read.
func (s *Calls) keep(ctx context.Context, ns Namespace) error {
	ns.SetListed(false)
	if err := s.list(ctx, ns); err != nil {
		return err
	}
	return ns.Register(ctx)
}

// StepCall implements [store.Calls].
func (s *Calls) StepCall(ctx context.Context, name string, a store.CallAct) (store.CallStep, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return store.CallStep{}, err
	}
	defer cancel()
	reply, err := s.run(redisclient.Confirmed(ctx), ns, scripts.CallStep, 2,
		a.ID, nonce(), a.User, a.Device, string(a.Action), a.App)
	if err != nil {
		return store.CallStep{}, err
	}
	if len(reply) < 2 {
		return store.CallStep{}, store.ErrCallNotFound
	}
	s.keepListed(ctx, ns)
	s.copyAll(ctx, ns, reply[1])
	return readCallStep(reply[0])
}

// KeepCallsAlive implements [store.Calls].
func (s *Calls) KeepCallsAlive(ctx context.Context, name string, active []store.KeepAlive) (store.KeptAlive, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
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
	reply, err := s.run(ctx, ns, scripts.CallKeepAlive, 3, args...)
	if err != nil {
		return store.KeptAlive{}, err
	}
	if len(reply) == 0 {
		return store.KeptAlive{Calls: make([]store.AliveCall, len(active))}, nil
	}
	s.keepListed(ctx, ns)
	s.copyAll(ctx, ns, reply[2])
	return readKeepAlive(reply, len(active))
}

// ExpireCalls implements [store.Calls]. It also copies what other servers have left in the outbox.
func (s *Calls) ExpireCalls(ctx context.Context, name string) (store.ExpiredCalls, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return store.ExpiredCalls{}, err
	}
	defer cancel()
	reply, err := s.run(ctx, ns, scripts.CallExpire, 5)
	if err != nil {
		return store.ExpiredCalls{}, err
	}
	expired, err := readExpired(reply)
	switch copied := s.copyAll(ctx, ns, reply[4]); {
	case err != nil:
	case !copied:
		expired.Next = max(expired.Next, copyPause)
	case expired.Kept == 0 && expired.Next > 0:
		s.unlist(ctx, ns)
	}
	return expired, err
}

// ReadCalls implements [store.Calls].
func (s *Calls) ReadCalls(ctx context.Context, name string, ids, users []string) ([]lastseen.Call, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	args := make([]any, 1, 1+len(ids)+len(users))
	args[0] = len(ids)
	for _, text := range slices.Concat(ids, users) {
		args = append(args, text)
	}
	calls, err := s.read(ctx, ns, args)
	if err == nil && calls == nil {
		calls = make([]lastseen.Call, len(ids)+len(users))
	}
	if err == nil && len(calls) != len(ids)+len(users) {
		return nil, fmt.Errorf("unexpected script reply of %d calls", len(calls))
	}
	return calls, err
}

// Forget deletes the calls of a user. Ongoing calls end.
func Forget(ctx context.Context, s *Calls, ns Namespace, user string) error {
	for more := true; more; {
		reply, err := s.run(redisclient.Confirmed(ctx), ns, scripts.CallForget, 2, user)
		if err != nil || len(reply) == 0 {
			return err
		}
		more = reply[0] == int64(1)
		s.copyAll(ctx, ns, reply[1])
	}
	return nil
}

// Delete deletes all calls of a namespace, each key for itself, and removes it from the list first: see
// unlist. When they expire goes first, and the calls go last: of a call that begins in between, nothing is left
// without a due time, at which ExpireCalls deletes it.
func Delete(ctx context.Context, s *Calls, ns Namespace) error {
	if err := s.client.ZRem(ctx, s.listed, ns.Name()).Err(); err != nil {
		return redisclient.Translate(err)
	}
	pipe, due := s.client.Pipeline(), ns.Key(due)
	pipe.Unlink(ctx, due)
	for _, key := range slices.Backward(keys(ns)) { // which begin with the calls
		if key != due {
			pipe.Unlink(ctx, key)
		}
	}
	_, err := pipe.Exec(ctx)
	return redisclient.Translate(err)
}
