package api

import "github.com/lastseen/lastseen/api/stream"

// maxPosts is the number of frames that wait for a slow client. More are dropped.
const maxPosts = 32

// outbox has what a session sends although its client did not ask for it, besides what it follows. While something
// waits there, a goroutine sends it, but not before the frame welcome. The mutex of the session guards it.
type outbox struct {
	self   []byte   // the newest frame self; nil for none
	frames [][]byte // others, in order
	ping   bool
}

// posted is one thing to send.
type posted struct {
	self  []byte // a frame self, which replaces one that waits
	frame []byte // another frame
	ping  bool   // a ping of WebSockets
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
	o.ping = o.ping || p.ping
	if begins {
		go n.sendPosts()
	}
	return true
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
	if err := n.socket.Ping(); err != nil && stream.IsSlow(err) {
		n.metrics.slowReader()
		n.close(newError(codeTimedOut, "The client received nothing for too long."))
	}
}
