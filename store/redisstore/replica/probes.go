package replica

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

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
