package store

import "time"

// ReplicaReader is a store that can answer reads from replicas of where it writes. What a replica has may be behind by
// a time that the store's settings bound. This is the only exception from the promise that a write is in every later
// result, so it is only for callers who asked for it: not for feeds, not for what decides about a write, and not for
// users who look at themselves.
type ReplicaReader interface {
	// FromReplica returns the store primary, whose reads of a namespace a replica answers where that is possible; false
	// if it is not at present. The result is for one request.
	FromReplica(primary Store, namespace string) (ReplicaReads, bool)
}

// ReplicaReads is a store for the reads of one request. A replica answers Describe, ReadDetails, List, Count
// and Newest of its namespace; everything else is what the primary store does. The replica's result has all writes
// from before the bound on the lag; later ones can be missing, also those of this process.
//
// The primary answers instead if the replica fails, or is too far behind. Then the replica is not used again in the
// request. So no call fails because of a replica. Writes do not decide which of the two answers: otherwise callers
// could see from Age that an invisible user goes on.
type ReplicaReads interface {
	Store

	// Age returns how far behind the results may be that a replica gave until now: the largest of them, measured when
	// they arrived. It returns false if the primary gave all of them.
	Age() (time.Duration, bool)
}
