// Package observe measures a store for Prometheus: the time of each call, and the number of users by status.
//
// Labels are bounded: operations and outcomes are fixed, namespaces are those that the caller names, and user IDs are
// never labels.
package observe

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/store"
)

// The outcomes of calls.
const (
	outcomeOK          = "ok"
	outcomeUnavailable = "unavailable" // the store cannot be reached, or did not respond in time
	outcomeFull        = "full"        // the store has no room, or as many namespaces as allowed
	outcomeOverloaded  = "overloaded"
	outcomeCanceled    = "canceled" // the caller is gone
	outcomeError       = "error"
)

// operations returns the values of the label: the methods of a store.
func operations() []string {
	return strings.Fields(`
		ping leave lookup count newest list forget trim namespaces register exist remove_empty delete_namespace
		lease note ready secret record_changes read_changes snapshot_changes scan_users sweep_changes record_devices
		read_devices close_connections closings set_availability read_availability read_details set_contacts
		change_contacts list_contacts are_contacts trim_contacts signal start_call step_call hear_calls
		read_calls expire_calls call_namespaces`)
}

// Calls measures the time of calls to a store. It is a [prometheus.Collector].
type Calls struct {
	*prometheus.HistogramVec
	now func() time.Duration           // since some moment: half the cost of the time of day, in each call
	ok  map[string]prometheus.Observer // of calls without an error, which are frequent; by operation
}

// NewCalls returns the metric lastseen_store_call_duration_seconds, without calls.
func NewCalls() *Calls {
	start := time.Now()
	c := &Calls{now: func() time.Duration { return time.Since(start) }, ok: map[string]prometheus.Observer{}}
	c.HistogramVec = prometheus.NewHistogramVec(
		histogram("lastseen_store_call_duration_seconds", "Time of calls to the store, by operation and outcome.",
			durationBuckets()),
		[]string{"operation", "outcome"})
	for _, operation := range operations() {
		c.ok[operation] = c.WithLabelValues(operation, outcomeOK)
	}
	return c
}

func (c *Calls) begin(string) time.Duration { return c.now() }

// done records a call that began at the given time and returned err.
func (c *Calls) done(operation string, begun time.Duration, err error) {
	child := c.ok[operation]
	if failed := failure(err); failed != nil {
		child = c.WithLabelValues(operation, outcome(failed))
	}
	child.Observe((c.now() - begun).Seconds())
}

// failure returns the error of a call, but nil if it is a result: there is no feed, a namespace cannot have what is
// asked for, a limit of a user is reached, another call came first, or a call of users did not begin.
func failure(err error) error {
	if err == nil {
		return nil
	}
	for _, result := range []error{
		store.ErrNotRecorded, store.ErrNoFeed, store.ErrNoDevices, store.ErrNoAvailability, store.ErrEvicts,
		store.ErrNoContacts, store.ErrTooManyContacts, store.ErrContactsChanged, store.ErrNoCalls,
		store.ErrCallNotFound, store.ErrCallerBusy, store.ErrCalleeBusy, store.ErrCalleeUnavailable,
		store.ErrTooManyCalls, store.ErrCallKeyReused,
	} {
		if errors.Is(err, result) {
			return nil
		}
	}
	return err
}

// ObserveReplica records a read that a replica answered or failed to answer: see ObserveReplica of
// [github.com/lastseen/lastseen/store/redisstore.Options].
func (c *Calls) ObserveReplica(operation string, took time.Duration, err error) {
	c.WithLabelValues("replica_"+operation, outcome(err)).Observe(took.Seconds())
}

// outcome returns the value of the label for an error of a store, or for none. A deadline that passed says that the
// store did not respond in time, whichever context it is from.
func outcome(err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrNamespaceLimit):
		return outcomeFull
	case errors.Is(err, store.ErrOverloaded):
		return outcomeOverloaded
	case errors.Is(err, context.Canceled):
		return outcomeCanceled
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return outcomeUnavailable
	default:
		return outcomeError
	}
}
