package redisclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// See docs/decisions/circuit-breaker.md for these values.
const (
	openFor        = 500 * time.Millisecond // after this, an open breaker lets one call through
	maxConsecutive = 5                      // failures in a row that open a breaker
	failureWindow  = 10 * time.Second       // in which outcomes count, at least
	minOutcomes    = 20                     // in the window, before that comparison opens a breaker
	forgetAfter    = time.Minute            // a breaker that was not used for this long is dropped
)

// BreakerState is the state of a circuit breaker. The values are those of the metric lastseen_breaker_state.
type BreakerState int

// The states of a circuit breaker.
const (
	BreakerClosed  BreakerState = iota // calls are sent
	BreakerProbing                     // one call is sent, whose outcome closes or opens the breaker
	BreakerOpen                        // calls fail at once
)

// Breaker is the circuit breaker of one Redis server.
type Breaker struct {
	Server string // its address
	State  BreakerState
}

// Breakers returns the circuit breakers of the servers that were used within the last minute, sorted by address.
func (c *Client) Breakers() []Breaker { return c.guard.states() }

// BreakersOpened returns how often circuit breakers opened since Open. It does not count probes that failed.
func (c *Client) BreakersOpened() int64 { return c.guard.opened.Load() }

// breakers has a circuit breaker for each address that commands are sent to.
type breakers struct {
	log       *OnceLogger
	monotonic func() time.Duration
	patience  time.Duration // a timeout before this says nothing about the server: the caller was in a hurry
	window    time.Duration // in which outcomes count
	opened    atomic.Int64

	mu     sync.Mutex
	byAddr map[string]*breaker
}

// breaker is the circuit breaker of one server.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	refusal error         // of calls while it is open
	used    time.Duration // when a command was last sent, by breakers.monotonic; guarded by breakers.mu
	listed  bool          // it was used for more than questions about the Cluster; guarded by breakers.mu
}

// errOpen is the error of calls that a circuit breaker refuses.
var errOpen = errors.New("circuit breaker is open")

// errNoVerdict stands for outcomes that count neither as success nor as failure.
var errNoVerdict = errors.New("no verdict")

func newBreakers(o Options) *breakers {
	return &breakers{
		log: &OnceLogger{Logger: o.Logger}, monotonic: o.Monotonic, patience: o.Timeout / 4,
		byAddr: map[string]*breaker{},
		window: max(failureWindow, 2*maxConsecutive*o.Timeout), // one batch after the other can time out
	}
}

// of returns the breaker of an address, and notes its use. A breaker that opens calls onOpen in a new goroutine.
func (b *breakers) of(addr string, isData bool, onOpen func()) *breaker {
	now := b.monotonic()
	b.mu.Lock()
	defer b.mu.Unlock()
	one, found := b.byAddr[addr]
	if !found {
		b.dropUnused(now)
		one = b.newBreaker(addr, onOpen)
		b.byAddr[addr] = one
	}
	one.used, one.listed = now, one.listed || isData
	return one
}

// drop forgets the breaker of an address that commands are no longer sent to.
func (b *breakers) drop(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byAddr, addr)
}

func (b *breakers) dropUnused(now time.Duration) {
	for addr, one := range b.byAddr {
		if now-one.used > forgetAfter {
			delete(b.byAddr, addr)
		}
	}
}

func (b *breakers) states() []Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropUnused(b.monotonic())
	all := make([]Breaker, 0, len(b.byAddr))
	for addr, one := range b.byAddr {
		if one.listed {
			all = append(all, Breaker{addr, BreakerState(one.State())})
		}
	}
	slices.SortFunc(all, func(x, y Breaker) int { return strings.Compare(x.Server, y.Server) })
	return all
}

func (b *breakers) newBreaker(addr string, onOpen func()) *breaker {
	return &breaker{
		refusal: fmt.Errorf("%w: %s does not respond", errOpen, addr),
		TwoStepCircuitBreaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			Timeout: openFor, Interval: b.window, ReadyToTrip: hasFailed,
			IsExcluded: func(err error) bool { return errors.Is(err, errNoVerdict) },
			OnStateChange: func(_ string, from, to gobreaker.State) {
				if to == gobreaker.StateOpen {
					go onOpen()
				}
				b.report(addr, from, to)
			},
		}),
	}
}

func hasFailed(c gobreaker.Counts) bool {
	outcomes := c.TotalSuccesses + c.TotalFailures
	return c.ConsecutiveFailures >= maxConsecutive || outcomes >= minOutcomes && 2*c.TotalFailures >= outcomes
}

// report counts and logs that a breaker opens, and logs that it closes. Probes that fail are no news.
func (b *breakers) report(addr string, from, to gobreaker.State) {
	switch {
	case from == gobreaker.StateClosed:
		b.opened.Add(1)
		b.log.Warn("circuit breaker opened: this Redis does not respond, calls to it fail at once", "server", addr)
	case to == gobreaker.StateClosed:
		b.log.Info("circuit breaker closed: this Redis responds again", "server", addr)
	}
}

// run sends commands with send, unless the server's breaker is open, and counts the outcome. The context that it passes
// on is inside: what go-redis does on it before the commands, on a new connection, is part of them.
func (b *breakers) run(ctx context.Context, one *breaker, send func(context.Context) error) error {
	done, err := one.Allow()
	if err != nil {
		return one.refusal
	}
	begun, outcome := b.monotonic(), errNoVerdict // of a panic: else a breaker that probes would wait for it forever
	defer func() { done(outcome) }()
	err = send(inside(ctx))
	outcome = b.verdict(err, b.monotonic()-begun)
	return err
}

// verdict returns what an outcome says about a server: nil if it works, errNoVerdict, or why it does not.
func (b *breakers) verdict(err error, waited time.Duration) error {
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil || ReplyError(err) != "": // refusals are fast, and Redis knows best why
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout):
		return errNoVerdict
	case errors.As(err, &timeout) && timeout.Timeout() && waited < b.patience:
		return errNoVerdict
	default:
		return err
	}
}
