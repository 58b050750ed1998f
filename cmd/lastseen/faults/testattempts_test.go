//go:build faults

package faults

import "time"

// attempts are the pings and leaves of a user that were sent.
type attempts struct {
	last    time.Time // when the last one was sent, successful or not
	open    int       // how many have no outcome yet
	doubted time.Time // when the last one was sent that was not acknowledged
}

// attempt notes that a ping or a leave is sent. The returned function notes its outcome.
func (l *ledger) attempt(user string) (end func(acknowledged bool)) {
	sent := time.Now()
	l.change(user, func(a *attempts) {
		a.last = sent
		a.open++
	})
	return func(acknowledged bool) {
		l.change(user, func(a *attempts) {
			a.open--
			if !acknowledged && sent.After(a.doubted) {
				a.doubted = sent
			}
		})
	}
}

func (l *ledger) change(user string, how func(*attempts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attempts[user]
	how(&a)
	l.attempts[user] = a
}

// settled returns the state that a user has now and had at a time. It is not ok if that is not certain: something was
// acknowledged since, has no outcome, failed but can have been recorded, or was lost by a crash.
func (l *ledger) settled(user string, at time.Time) (state ack, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost ack
	for _, a := range l.users[user] {
		switch {
		case !a.received.Before(at):
			return ack{}, false
		case l.counts(a) && a.state.Compare(state.state) > 0:
			state = a
		case !l.counts(a) && a.state.Compare(lost.state) > 0:
			lost = a
		}
	}
	sent := l.attempts[user]
	doubtful := !sent.doubted.IsZero() && sent.doubted.Add(latestArrival).After(state.sent)
	return state, sent.open == 0 && !doubtful && lost.state.Compare(state.state) <= 0 && state.state.Known()
}
