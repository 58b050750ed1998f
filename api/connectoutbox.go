package api

import (
	"slices"

	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
)

// maxPosts is the number of frames that wait for a slow client. More are dropped.
const maxPosts = 32

// outbox has what a session sends although its client did not ask for it, besides what it follows. While something
// waits there, a goroutine sends it, but not before the frame welcome. The mutex of the session guards it.
type outbox struct {
	self   []byte // the newest frame self; nil for none
	calls  []callFrame
	frames [][]byte // others, in order
	ping   bool
}

// callFrame is the newest frame of a call.
type callFrame struct {
	id    string // of the call
	frame []byte
}

// posted is one thing to send.
type posted struct {
	self  []byte    // a frame self, which replaces one that waits
	call  callFrame // a frame call, which replaces one of the same call; empty for none
	frame []byte    // another frame
	ping  bool      // a ping of WebSockets
}

// post has something sent soon, without waiting for the client. It returns false if too much waits.
func (n *session) post(p posted) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	begins := n.welcomed && n.outbox == nil
	if n.outbox == nil {
		n.outbox = &outbox{}
	}
	o := n.outbox
	if p.frame != nil {
		if len(o.frames) >= maxPosts {
			return false
		}
		o.frames = append(o.frames, p.frame)
	}
	if p.self != nil {
		o.self = p.self
	}
	o.putCall(p.call)
	o.ping = o.ping || p.ping
	if begins {
		go n.sendPosts()
	}
	return true
}

// putCall puts the frame of a call in place of an older one. If too many wait, the first is dropped, which is of a call
// that is over by now: only the last can go on.
func (o *outbox) putCall(c callFrame) {
	if c.frame == nil {
		return
	}
	o.calls = slices.DeleteFunc(o.calls, func(other callFrame) bool { return other.id == c.id })
	o.calls = append(o.calls, c)
	o.calls = o.calls[max(0, len(o.calls)-maxPosts):]
}

// sendPosts sends what waits, until nothing does or the client is gone.
func (n *session) sendPosts() {
	defer func() { n.recovered(recover()) }()
	for {
		p, ok := n.nextPost()
		switch {
		case !ok:
			return
		case p.self != nil:
			n.send(p.self)
		case p.call.frame != nil:
			n.send(p.call.frame)
		case p.frame != nil:
			n.send(p.frame)
		default:
			n.pingNow()
		}
	}
}

// nextPost returns what to send next; false if there is nothing, and then the goroutine ends.
func (n *session) nextPost() (p posted, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.outbox
	switch {
	case n.ctx.Err() != nil:
	case o.self != nil:
		p.self, o.self = o.self, nil
		return p, true
	case len(o.calls) > 0:
		p.call, o.calls = o.calls[0], o.calls[1:]
		return p, true
	case len(o.frames) > 0:
		p.frame, o.frames = o.frames[0], o.frames[1:]
		return p, true
	case o.ping:
		p.ping, o.ping = true, false
		return p, true
	}
	n.outbox = nil
	return p, false
}

// pingNow sends a ping out of turn.
func (n *session) pingNow() {
	if err := n.socket.Ping(); err != nil && transport.IsSlow(err) {
		n.Telemetry.CountSocket(telemetry.SlowReader)
		n.close(problem.New(problem.TimedOut, "The client received nothing for too long."))
	}
}
