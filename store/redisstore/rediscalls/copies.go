package rediscalls

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// InCall says until when a user is in a call; 0 for not.
type InCall struct {
	User  string
	Until lastseen.Instant // by the clock of the Redis that has the calls
}

const (
	copyAttempts = 5 // others change what is copied meanwhile; then it is left to ExpireCalls
	copyTimeouts = 4 // of a command: the time for all of them
	copyPause    = time.Second
)

// copyAll copies what a script of calls has noted, and reports whether nothing of it is left. The step was done
// whether that succeeds or not, and what fails stays in the outbox. It goes on if the context ends: a copy that is not
// confirmed can be an old value, which replaced a newer one of another server.
func (s *Calls) copyAll(ctx context.Context, ns Namespace, noted any) (done bool) {
	left, err := readInCalls(noted)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyTimeouts*s.client.Timeout)
	defer cancel()
	for attempt := 0; len(left) > 0 && err == nil && attempt < copyAttempts; attempt++ {
		if err = ns.SetInCalls(ctx, left); err == nil {
			left, err = s.confirm(ctx, ns, left)
		}
	}
	if err != nil {
		ns.Warn("in call", "cannot record who is in a call; trying again", "error", err)
	}
	return err == nil && len(left) == 0
}

// confirm removes from the outbox what was copied. It returns, with their present values, those that have
// changed since: they have to be copied again, and are in the outbox, also if they were not before.
func (s *Calls) confirm(ctx context.Context, ns Namespace, in []InCall) ([]InCall, error) {
	args := make([]any, 0, 2*len(in))
	for i := range in {
		args = append(args, &in[i].User, int64(in[i].Until))
	}
	reply, err := s.run(ctx, ns, scripts.CallCopies, 1, args...)
	if err != nil {
		return nil, err
	}
	again, err := readInCalls(reply[0])
	if len(again) > 0 {
		s.keepListed(ctx, ns) // so that others find them if this server does not come to copy them
	}
	return again, err
}
