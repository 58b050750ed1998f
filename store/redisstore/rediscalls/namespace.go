package rediscalls

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Namespace is a namespace that was checked, within one operation.
type Namespace interface {
	Name() string
	Key(word string) string             // the key of its calls with this word, in the slot of its first shard
	Admit(ctx context.Context) error    // creates it if it does not exist and there may be more
	Register(ctx context.Context) error // creates it again if another server has deleted it
	Recheck()                           // has it checked again before its next use
	Listed() bool                       // whether SetListed was called with true since its last check
	SetListed(listed bool)
	Warn(about, message string, args ...any) // logs the first remark of its type

	// SetInCalls records until when users are in a call. Each user is in it once.
	SetInCalls(ctx context.Context, in []InCall) error
}

// Open begins an operation on a namespace, after checking that this server can serve it, and that it can have calls.
type Open func(ctx context.Context, name string) (context.Context, context.CancelFunc, Namespace, error)

// The words of keys that are used besides scripts. The first exists while calls are kept, the second has those that go
// on, and the third has the users who have to be copied.
const kept, due, outbox = "calls", "callsdue", "calloutbox"

// keys returns the keys of the calls of a namespace, as scripts take them: see calls.lua.
func keys(ns Namespace) []string {
	words := []string{kept, "callapps", due, "callsover", "callusers", outbox, "callkeys", "callindex"}
	for i, word := range words {
		words[i] = ns.Key(word)
	}
	return words
}

// run runs a script of calls, and returns its reply without the first element: a call that another program wrote,
// which is logged. The reply has n elements more, or none: then no call is kept, see send, or the call is not found.
func (s *Calls) run(
	ctx context.Context, ns Namespace, script *redis.Script, n int, args ...any,
) ([]any, error) {
	cmd, err := s.send(ctx, ns, script, args)
	if err != nil || cmd == nil {
		return nil, err
	}
	reply, err := redisclient.Slice(cmd.Val(), -1)
	if err != nil || len(reply) != 1 && len(reply) != n+1 {
		return nil, fmt.Errorf("unexpected script reply %T of %d elements instead of %d", cmd.Val(), len(reply), n+1)
	}
	if reply[0] != nil {
		ns.Warn("calls", "a call cannot be read: it counts as none", "call", reply[0])
	}
	return reply[1:], nil
}

// send runs a script of calls. For half of the time, it repeats what Redis refuses while the keys move to another node
// of a Cluster. The reply is nil if no call is kept then and the script needs one.
func (s *Calls) send(ctx context.Context, ns Namespace, script *redis.Script, args []any) (*redis.Cmd, error) {
	keys := keys(ns)
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
		if !redisclient.Pause(waiting, redisclient.RepeatPause) {
			return nil, redisclient.Translate(cmd.Err())
		}
	}
}

// list has CallNamespaces return a namespace. It writes once in each round: in a Cluster, the list can be lost
// while the calls are not.
func (s *Calls) list(ctx context.Context, ns Namespace) error {
	if ns.Listed() {
		return nil
	}
	if err := s.client.ZAdd(ctx, s.listed, redis.Z{Member: ns.Name()}).Err(); err != nil {
		return redisclient.Translate(err)
	}
	ns.SetListed(true)
	return nil
}

// keepListed is list for a call that was found. If it fails, the next one writes it.
func (s *Calls) keepListed(ctx context.Context, ns Namespace) { _ = s.list(ctx, ns) }

// IsListed reports whether CallNamespaces returns a namespace.
func IsListed(ctx context.Context, s *Calls, name string) (bool, error) {
	err := s.client.ZScore(ctx, s.listed, name).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, redisclient.Translate(err)
}

// IsOngoing reports whether a namespace has an ongoing call.
func IsOngoing(ctx context.Context, s *Calls, ns Namespace) (bool, error) {
	n, err := s.client.ZCount(ctx, ns.Key(due), "-inf", "(inf").Result()
	return n > 0, redisclient.Translate(err)
}

// unlist removes a namespace from the list that has no calls. Another server may begin one at any point: if none
// went on before, it adds the namespace again after that. It is only tidying: errors do no harm.
func (s *Calls) unlist(ctx context.Context, ns Namespace) {
	removed, err := s.client.ZRem(ctx, s.listed, ns.Name()).Result()
	if err != nil || removed == 0 {
		return
	}
	ns.SetListed(false)
	pipe := s.client.Pipeline()
	cmds := []*redis.IntCmd{pipe.Exists(ctx, ns.Key(kept)), pipe.Exists(ctx, ns.Key(outbox))}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	if n, err := redisclient.Sum(cmds); err != nil || n > 0 {
		s.keepListed(ctx, ns)
	}
}
