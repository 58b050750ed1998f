package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// heartbeat is when this process wrote it to the primary, by both of its clocks. A replica that has it has everything
// that the primary did before, so its age follows from this machine's clocks alone.
type heartbeat struct {
	mono time.Duration
	wall time.Time
	read bool // from a replica
}

// String returns what Redis has: nanoseconds by both clocks.
func (h heartbeat) String() string { return fmt.Sprintf("%d %d", h.mono, h.wall.UnixNano()) }

// clocks are those of this machine.
type clocks struct {
	monotonic func() time.Duration
	now       func() time.Time
}

// present returns a heartbeat of this moment.
func (c clocks) present() heartbeat { return heartbeat{mono: c.monotonic(), wall: c.now().Round(0)} }

// parse reads what a replica has; false if this process has not written it.
func (c clocks) parse(text string) (heartbeat, bool) {
	first, second, _ := strings.Cut(text, " ")
	mono, err1 := strconv.ParseInt(first, 10, 64)
	wall, err2 := strconv.ParseInt(second, 10, 64)
	ours := err1 == nil && err2 == nil && time.Duration(mono) <= c.monotonic()
	return heartbeat{time.Duration(mono), time.Unix(0, wall), true}, ours
}

// age returns how long ago a heartbeat was, by the clock that says more. While a machine is suspended, its monotonic
// clock may stand still; the other one may be set back.
func (c clocks) age(of heartbeat) time.Duration {
	at := c.present()
	return max(at.mono-of.mono, at.wall.Sub(of.wall), 0)
}

// errNoHeartbeat is the error of a replica that has no heartbeat of this process.
var errNoHeartbeat = errors.New("it has no heartbeat of this server, which each gets from the primary")

// probe reads the heartbeat from a replica.
func (r *Set) probe(ctx context.Context, one *replica) {
	asking, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	text, err := one.client.Get(asking, r.o.HeartbeatKey).Result()
	if ctx.Err() != nil {
		return // it is not read from any longer
	}
	if found, ok := r.clocks.parse(text); err == nil && ok {
		one.seen.Store(&found)
	}
	one.working.Store(err == nil)
	r.report(one, err)
}

// report logs that a replica cannot be read, once that has lasted for longer than the largest lag, and when it can be
// read again. A replica that restarts meanwhile is not worth a remark.
func (r *Set) report(one *replica, err error) {
	if err == nil {
		if one.reported {
			r.client.Log.LogOnce(slog.LevelInfo, one.addr, "replica", "works",
				"a replica can be read from again", "server", one.addr)
		}
		one.failing, one.reported = nil, false
		return
	}
	if one.failing == nil {
		now := r.clocks.present()
		one.failing = &now
	}
	if r.clocks.age(*one.failing) <= r.o.MaxLag {
		return
	}
	if errors.Is(err, redis.Nil) {
		err = errNoHeartbeat
	}
	one.reported = true
	r.client.Log.LogOnce(slog.LevelWarn, one.addr, "replica", "failed",
		"cannot read from a replica", "server", one.addr, "error", err)
}

// saw notes a heartbeat that a replica had, unless it has had a newer one.
func (one *replica) saw(found heartbeat) {
	for before := one.seen.Load(); !before.read || before.mono < found.mono; before = one.seen.Load() {
		newer := found
		if one.seen.CompareAndSwap(before, &newer) {
			return
		}
	}
}

// errBehind is the error of commands to a replica that is too far behind.
var errBehind = errors.New("the replica is too far behind")

// hook reads the heartbeat before everything that is read from a replica, in the same round trip and on the same
// connection. So no result is older than its heartbeat, also if another server now has the replica's address. Commands
// that do not read for a caller, such as those that begin a connection, pass.
type hook struct {
	replicas *Set
	replica  *replica
}

// DialHook implements [redis.Hook].
func (*hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if answerOf(ctx) == nil {
			return next(ctx, cmd)
		}
		pipe := h.replica.client.Pipeline()
		_ = pipe.Process(ctx, cmd) // only queues it
		_, _ = pipe.Exec(ctx)
		return cmd.Err()
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a := answerOf(ctx)
		if a == nil {
			return next(ctx, cmds)
		}
		expired := ctx.Err() != nil // then nothing is sent
		get := redis.NewStringCmd(ctx, "get", h.replicas.o.HeartbeatKey)
		sent := next(context.WithValue(ctx, answerKey{}, (*answer)(nil)), append([]redis.Cmder{get}, cmds...))
		err := h.check(a, get)
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		} else {
			err = sent
		}
		a.failed = a.failed || err != nil && !expired // a read can take two round trips
		return err
	}
}

// check returns an error unless the heartbeat is young enough, and notes its age.
func (h *hook) check(a *answer, get *redis.StringCmd) error {
	text, err := get.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	found, ok := h.replicas.clocks.parse(text)
	age := time.Duration(0)
	if ok {
		age = h.replicas.clocks.age(found)
		h.replica.saw(found)
	}
	if !ok || age > h.replicas.o.MaxLag {
		a.behind = true
		return fmt.Errorf("%w: by %s", errBehind, age)
	}
	a.asked, a.age = true, max(a.age, age)
	return nil
}
