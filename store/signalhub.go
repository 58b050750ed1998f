package store

import (
	"context"
	"slices"
	"sync"
)

// maxQueued is the number of signals that wait for a listener. More are lost, and the listener learns that some were.
const maxQueued = 4096

// SignalHub passes signals to the listeners within a process. The zero value is ready to use, and its methods may be
// called concurrently.
type SignalHub struct {
	mu        sync.Mutex
	listeners map[*SignalListener]struct{}
}

// SignalListener has the signals that wait for one listener. Use [SignalHub.Join].
type SignalListener struct {
	wake Waker // if something waits

	mu     sync.Mutex
	queued []Signal
	lost   bool // signals after those queued may have been lost
}

// Send passes a signal to all listeners. It does not wait for them.
func (h *SignalHub) Send(s Signal) {
	h.mu.Lock() // also while they are queued, so that all listeners have them in the same order
	defer h.mu.Unlock()
	if len(h.listeners) == 0 {
		return
	}
	s.Data = slices.Clone(s.Data)
	for l := range h.listeners {
		l.Push(s)
	}
}

// Join adds a listener. The caller calls Leave.
func (h *SignalHub) Join() *SignalListener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &SignalListener{wake: NewWaker()}
	if h.listeners == nil {
		h.listeners = map[*SignalListener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l
}

// Leave removes a listener.
func (h *SignalHub) Leave(l *SignalListener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
}

// Push queues a signal.
func (l *SignalListener) Push(s Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost || len(l.queued) >= maxQueued {
		l.lost = true
	} else {
		l.queued = append(l.queued, s)
	}
	l.wake.Wake()
}

// Lose queues the zero signal, which says that signals may have been lost.
func (l *SignalListener) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	l.wake.Wake()
}

// Run calls receive for each signal that is queued, one at a time, until the context ends.
func (l *SignalListener) Run(ctx context.Context, receive func(Signal)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for _, s := range l.take() {
			if ctx.Err() != nil {
				return
			}
			receive(s)
		}
	}
}

// take returns what is queued: the zero signal is last.
func (l *SignalListener) take() []Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.queued
	if l.lost {
		all = append(all, Signal{})
	}
	l.queued, l.lost = nil, false
	return all
}
