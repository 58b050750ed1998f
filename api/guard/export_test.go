package guard

import "net"

// Connections returns how many connections of a listener wait to be served, are open, and are idle.
func Connections(listener net.Listener) (n struct{ Accepted, Open, Idle int }) {
	l := listener.(*limitedListener)
	l.mu.Lock()
	defer l.mu.Unlock()
	n.Accepted, n.Open, n.Idle = len(l.accepted), l.open, l.idle.Len()
	return n
}
