package store

import "time"

// ReplicaReader is a store that can answer reads from replicas of where it writes. What a replica has may be behind by
// a time that the store's settings bound. This is the only exception from the promise that a write is in every later
// result, so it is only for callers who asked for it: not for feeds, not for what decides about a write, and not for
// users who look at themselves.
type ReplicaReader interface {
	// Moment returns the present, as reads from replicas know it.
	Moment() Moment

	// FromReplica returns the store primary, whose reads of a namespace a replica answers where that is possible; false
	// if it is not at present. The result is for one request.
	FromReplica(primary Store, namespace string, since Moment) (ReplicaReads, bool)
}

// Moment is a moment of one process. Zero is before all others. Moments follow no clock: what was done before a moment
// is in everything that FromReplica reads since that moment.
type Moment int64

// ReplicaReads is a store for the reads of one request. A replica answers Lookup, Describe, ReadDetails, List, Count
// and Newest of its namespace; everything else is what the primary store does. The replica's result has all writes
//
//   - that any process did longer ago than the bound on the lag;
//   - that returned before the moment that was given to FromReplica, by calls of this process;
//   - of the users who are looked up by name, by calls of this process that returned before without an error, whatever
//     the moment is. So are, in lists and counts, the deletions of this process and what users said through it.
//     Becoming invisible is not one of these: lists and counts have it when they would have a leave. Lookups can lack
//     it, too, if the write was sent again after its outcome was unknown.
//
// What a replica cannot answer like this, the primary answers: users whom this process wrote just now, one by one, and
// everything if the replica fails, or is too far behind. Once it did not answer, it is not asked again in the request.
// So no call fails because of a replica. What is hidden, because a user is invisible, does not change which of the two
// answers.
type ReplicaReads interface {
	Store

	// Age returns how far behind the results may be that a replica gave until now: the largest of them, measured when
	// they arrived. It returns false if the primary gave all of them.
	Age() (time.Duration, bool)
}
