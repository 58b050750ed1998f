package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed ping.lua
	pingSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed count.lua
	countSource string
	//go:embed page.lua
	pageSource string
	//go:embed trim.lua
	trimSource string
	//go:embed lease.lua
	leaseSource string
	//go:embed group.lua
	groupSource string
	//go:embed time.lua
	timeSource string
	//go:embed probe.lua
	probeSource string
	//go:embed clock.lua
	clockSource string
	//go:embed register.lua
	registerSource string
	//go:embed tie.lua
	tieSource string
)

// scripts are what runs inside Redis.
var scripts = struct{ ping, leave, count, page, group, trim, lease, time, probe, register *redis.Script }{
	ping:  redis.NewScript(clockSource + pingSource),
	leave: redis.NewScript(clockSource + leaveSource),
	count: redis.NewScript(countSource),
	page:  redis.NewScript(tieSource + pageSource),
	group: redis.NewScript(tieSource + groupSource),
	trim:  redis.NewScript(clockSource + trimSource),
	lease: redis.NewScript(leaseSource),
	time:  redis.NewScript(timeSource),
	probe: redis.NewScript(probeSource),

	register: redis.NewScript(registerSource),
}

// call is one run of a script on one key.
type call struct {
	key  string
	args []any
}

// runScript runs a script once for each call, all in one round trip, and returns the replies in the
// order of the calls. The error is that of the first call that failed; others may have run.
func (s *Store) runScript(ctx context.Context, script *redis.Script, calls []call) ([]*redis.Cmd, error) {
	cmds, err := s.runScripts(ctx, script, calls)
	for _, cmd := range cmds {
		if err == nil {
			err = translate(cmd.Err())
		}
	}
	if err != nil {
		return nil, err
	}
	return cmds, nil
}

// runScripts is runScript with the error of each call in its reply. Redis forgets scripts when it
// restarts or fails over; those it does not know are sent again in full.
func (s *Store) runScripts(ctx context.Context, script *redis.Script, calls []call) ([]*redis.Cmd, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	cmds := s.pipeline(ctx, calls, func(p redis.Scripter, c call) *redis.Cmd {
		return p.EvalSha(ctx, script.Hash(), []string{c.key}, c.args...)
	})
	var missing []int
	var again []call
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			missing, again = append(missing, i), append(again, calls[i])
		}
	}
	resent := s.pipeline(ctx, again, func(p redis.Scripter, c call) *redis.Cmd {
		return script.Eval(ctx, p, []string{c.key}, c.args...)
	})
	for i, cmd := range resent {
		cmds[missing[i]] = cmd
	}
	return cmds, nil
}

// pipeline sends one command for each call in one round trip. Errors stay in the commands.
func (s *Store) pipeline(ctx context.Context, calls []call, send func(redis.Scripter, call) *redis.Cmd) []*redis.Cmd {
	switch len(calls) {
	case 0:
		return nil
	case 1:
		return []*redis.Cmd{send(s.client, calls[0])}
	}
	p := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = send(p, c)
	}
	_, _ = p.Exec(ctx) // the error is also in the commands it befell
	return cmds
}
