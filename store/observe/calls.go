// Package observe measures a store for Prometheus: the time of each call, and the number of users by status.
//
// Labels are bounded: operations and outcomes are fixed, namespaces are those that the caller names, and user IDs are
// never labels.
package observe

import (
	"context"
	"errors"
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

// operation is a method of a store.
type operation int

const (
	opPing operation = iota
	opLeave
	opLookup
	opCount
	opNewest
	opList
	opForget
	opTrim
	opNamespaces
	opRegister
	opExist
	opRemoveEmpty
	opDeleteNamespace
	opLease
	opReady
	opRecordChanges
	opReadChanges
	opSnapshotChanges
	opScanUsers
	opSweepChanges
	opRecordDevices
	opReadDevices
	opCloseConnections
	opClosings
	opSetAvailability
	opReadAvailability
	opReadDetails
	opSetContacts
	opChangeContacts
	opListContacts
	opAreContacts
	opTrimContacts
	opSignal
	opStartCall
	opStepCall
	opHearCalls
	opReadCalls
	opExpireCalls
	opCallNamespaces
	operations // their number
)

// operationNames returns the values of the label, by operation.
func operationNames() [operations]string {
	return [...]string{
		opPing: "ping", opLeave: "leave", opLookup: "lookup", opCount: "count", opNewest: "newest", opList: "list",
		opForget: "forget", opTrim: "trim", opNamespaces: "namespaces", opRegister: "register",
		opExist:       "exist",
		opRemoveEmpty: "remove_empty", opDeleteNamespace: "delete_namespace", opLease: "lease", opReady: "ready",
		opRecordChanges: "record_changes", opReadChanges: "read_changes", opSnapshotChanges: "snapshot_changes",
		opScanUsers:    "scan_users",
		opSweepChanges: "sweep_changes", opRecordDevices: "record_devices", opReadDevices: "read_devices",
		opCloseConnections: "close_connections", opClosings: "closings",
		opSetAvailability: "set_availability", opReadAvailability: "read_availability", opReadDetails: "read_details",
		opSetContacts: "set_contacts", opChangeContacts: "change_contacts", opListContacts: "list_contacts",
		opAreContacts: "are_contacts", opTrimContacts: "trim_contacts", opSignal: "signal",
		opStartCall: "start_call", opStepCall: "step_call", opHearCalls: "hear_calls", opReadCalls: "read_calls",
		opExpireCalls: "expire_calls", opCallNamespaces: "call_namespaces",
	}
}

// Calls measures the time of calls to a store. It is a [prometheus.Collector].
type Calls struct {
	*prometheus.HistogramVec
	now   func() time.Duration // since some moment: half the cost of the time of day, in each call
	names [operations]string
	ok    [operations]prometheus.Observer // of calls without an error, which are frequent
}

// NewCalls returns the metric lastseen_store_call_duration_seconds, without calls.
func NewCalls() *Calls {
	start := time.Now()
	c := &Calls{now: func() time.Duration { return time.Since(start) }, names: operationNames()}
	c.HistogramVec = prometheus.NewHistogramVec(
		histogram("lastseen_store_call_duration_seconds", "Time of calls to the store, by operation and outcome.",
			durationBuckets()),
		[]string{"operation", "outcome"})
	for o, name := range c.names {
		c.ok[o] = c.WithLabelValues(name, outcomeOK)
	}
	return c
}

func (c *Calls) begin(operation) time.Duration { return c.now() }

// done records a call that began at the given time and returned err.
func (c *Calls) done(o operation, begun time.Duration, err error) {
	child := c.ok[o]
	if failed := failure(err); failed != nil {
		child = c.WithLabelValues(c.names[o], outcome(failed))
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
