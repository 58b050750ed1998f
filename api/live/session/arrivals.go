package session

import (
	linked "container/list"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
)

// The limits of how many clients begin a session at the same time. All clients of a server that failed come back
// together: a few at a time are welcome soon, while all at once would wait for each other, and for the store, until
// their time is up.
const (
	// slotsPerCPU is how many clients begin at the same time for each processor: enough for networks and stores that
	// take some hundred milliseconds to respond.
	slotsPerCPU = 512
	// hellosPerCPU is how many of their frames hello are handled at the same time for each processor. The more there
	// are, the longer each one, and the store's responses, wait for a processor.
	hellosPerCPU = 64
	// promptHello is how long a client has a slot without sending the frame hello. Later it has to wait for another.
	promptHello = time.Second
	// maxArrivalWait is how long a client can be expected to wait: less than the 10 seconds after which some clients
	// give up.
	maxArrivalWait = 8 * time.Second
	// usualArrivals is how many clients a second are expected to begin until they are counted: as measured on two
	// processors that also ran the clients.
	usualArrivals  = 2500
	arrivalsWindow = time.Second // over which they are counted
	// maxReturn is the longest time after which a client is asked to come back.
	maxReturn = time.Minute
)

// arrivals are the clients that begin a session: from the upgrade to the frame welcome. They are served in order, up to
// a number at a time; the others wait before the upgrade. Its methods may be called concurrently.
type arrivals struct {
	now    func() time.Time
	slots  int
	hellos chan struct{} // has as many as are being handled

	mu     sync.Mutex
	taken  int         // slots
	queue  linked.List // of chan struct{}, closed when it is their turn
	rate   float64     // slots given back a second; measured while the queue is not empty
	since  time.Time   // when the window began
	ended  int         // since then
	booked time.Time   // up to which clients were asked to come back
}

func newArrivals(now func() time.Time) *arrivals {
	cpus := runtime.GOMAXPROCS(0)
	return &arrivals{
		now: now, slots: slotsPerCPU * cpus, hellos: make(chan struct{}, hellosPerCPU*cpus), rate: usualArrivals,
	}
}

// enter waits for the client's turn. The caller calls leave after an error of nil. It returns an error at once if the
// client would have to wait for too long.
func (a *arrivals) enter(ctx context.Context) error {
	a.mu.Lock()
	if a.taken < a.slots {
		a.taken++
		a.mu.Unlock()
		return nil
	}
	if err := a.refusal(); err != nil {
		a.mu.Unlock()
		return err
	}
	if a.queue.Len() == 0 {
		a.since, a.ended = a.now(), 0
	}
	turn := make(chan struct{})
	place := a.queue.PushBack(turn)
	a.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		a.abandon(place)
		return ctx.Err()
	}
}

// abandon gives the place in the queue back, or the slot if it is the client's turn already.
func (a *arrivals) abandon(place *linked.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-place.Value.(chan struct{}):
		a.next()
	default:
		a.queue.Remove(place)
		a.settle()
	}
}

// leave ends the handling of a frame hello.
func (a *arrivals) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended++
	if elapsed := a.now().Sub(a.since); a.queue.Len() > 0 && elapsed >= arrivalsWindow {
		a.rate = float64(a.ended) / elapsed.Seconds()
		a.since, a.ended = a.now(), 0
	}
	a.next()
}

// next gives a slot to the first client in the queue.
func (a *arrivals) next() {
	first := a.queue.Front()
	if first == nil {
		a.taken--
		return
	}
	close(a.queue.Remove(first).(chan struct{}))
	a.settle()
}

// settle forgets the measured rate when nobody waits any longer: the next crowd may meet a store that is faster.
func (a *arrivals) settle() {
	if a.queue.Len() == 0 {
		a.rate = usualArrivals
	}
}

// refusal returns an error if the queue is too long. The error has the time after which the client should come back:
// each one gets its own time, after those who wait and those who were refused before, at the rate at which hellos
// are handled.
func (a *arrivals) refusal() error {
	if timeFor(a.queue.Len(), a.currentRate()) <= maxArrivalWait {
		return nil
	}
	return problem.New(problem.Overloaded, "Too many clients connect at the same time. Connect again later.").
		RetryAfter(a.book())
}

// book returns after how many seconds another client that was refused should come back. A low rate passes, but a client
// that was asked to wait long does so: the times are those of at least the usual rate.
func (a *arrivals) book() int64 {
	now, rate := a.now(), max(a.rate, usualArrivals)
	wait := min(timeFor(a.queue.Len(), rate), maxReturn/2)
	if earliest := now.Add(wait); a.booked.Before(earliest) || a.booked.After(now.Add(maxReturn)) {
		a.booked = earliest
	}
	a.booked = a.booked.Add(timeFor(1, rate))
	return guard.WholeSeconds(a.booked.Sub(now))
}

// timeFor returns how long some clients take at a rate a second.
func timeFor(clients int, rate float64) time.Duration {
	return time.Duration(float64(clients) / rate * float64(time.Second))
}

// currentRate returns the number of hellos handled a second: as counted last, or fewer if it has become less since.
func (a *arrivals) currentRate() float64 {
	if elapsed := a.now().Sub(a.since); a.queue.Len() > 0 && elapsed > arrivalsWindow {
		return min(a.rate, float64(a.ended+a.slots)/elapsed.Seconds())
	}
	return a.rate
}
