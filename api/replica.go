package api

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// This file reads from replicas for services: see docs/decisions/replicas.md.

// ageHeader is how old the data of a response may be that a replica gave, in seconds. Other responses do not have it.
const ageHeader = "Lastseen-Age"

// readerFor returns the store from which a request looks users up in a namespace: that of [server.storeFor], or for API
// keys one whose reads a replica may answer.
func (s *server) readerFor(c echo.Context, namespace string) userStore {
	return s.readerSince(c, namespace, 0)
}

// listReader is readerFor for lists and counts, which have what the caller wrote. Replicas answer only first pages: if
// a later one were behind the page before it, users who did not move could be missing.
func (s *server) listReader(c echo.Context, namespace string, q query) userStore {
	_, cursor := q.get("cursor")
	_, offset := q.get("offset")
	if cursor || offset {
		return s.storeFor(c, namespace)
	}
	return s.readerSince(c, namespace, s.lastWrite(c, namespace))
}

// readerSince is readerFor with a moment before which all writes of this server have to be in what is read.
func (s *server) readerSince(c echo.Context, namespace string, since store.Moment) userStore {
	if !s.mayUseReplicas(c) {
		return s.storeFor(c, namespace)
	}
	// The whole is counted, so that a call that a replica cannot answer counts once.
	primary := s.Store.(*callStore).Store
	reads, ok := s.replicas.FromReplica(primary, namespace, since)
	if !ok {
		return s.storeFor(c, namespace)
	}
	response := c.Response()
	response.Before(func() {
		if age, ok := reads.Age(); ok && response.Status < http.StatusBadRequest {
			response.Header().Set(ageHeader, strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
		}
	})
	return &callStore{reads, s.overload} // API keys see all users: see viewerOf
}

// mayUseReplicas reports whether replicas may answer the caller of a request.
func (s *server) mayUseReplicas(c echo.Context) bool {
	caller := callerOf(c)
	return s.replicas != nil && caller != nil && caller.Kind == auth.ByKey
}

// ownWritesKept is the number of places for what API keys wrote. Two keys, or namespaces, that share one read from the
// primary after each other's writes.
const ownWritesKept = 4096

// ownWrites remember when requests of API keys wrote to namespaces through this server, so that a service finds what it
// wrote in the lists and counts that it asks this server for. Only what requests write until their response is among
// it: not what a key writes through a WebSocket, and not leaves that take effect later. Lookups have all of it without
// this, because stores remember whom they wrote.
type ownWrites struct {
	seed   maphash.Seed
	places [ownWritesKept]ownWrite
}

// ownWrite is what the requests of one place did.
type ownWrite struct {
	going atomic.Int64 // requests in progress
	last  atomic.Int64 // the moment at which the last one ended
}

func newOwnWrites() *ownWrites { return &ownWrites{seed: maphash.MakeSeed()} }

func (o *ownWrites) place(caller *auth.Caller, namespace string) *ownWrite {
	var h maphash.Hash
	h.SetSeed(o.seed)
	_, _ = h.WriteString(caller.Name) // never fails: see [maphash.Hash]
	_ = h.WriteByte(0)
	_, _ = h.WriteString(namespace)
	return &o.places[h.Sum64()%ownWritesKept]
}

// lastWrite returns the moment at which the last write of a request's caller to a namespace ended: the present if one
// is in progress. It is 0 for keys that cannot ping there: lists always have what such a key deleted, and a key
// that shares its place could write for invisible users.
func (s *server) lastWrite(c echo.Context, namespace string) store.Moment {
	if !s.mayUseReplicas(c) || !callerOf(c).CanItself(auth.Ping, namespace) {
		return 0
	}
	place := s.ownWrites.place(callerOf(c), namespace)
	if place.going.Load() > 0 {
		return s.replicas.Moment()
	}
	return store.Moment(place.last.Load())
}

// beginWrite notes that a request of an API key writes to a namespace, until the result is called.
func (s *server) beginWrite(c echo.Context) (end func()) {
	namespace, err := pathNamespace(c)
	if err != nil || !s.mayUseReplicas(c) {
		return func() {}
	}
	place := s.ownWrites.place(callerOf(c), namespace)
	place.going.Add(1)
	return func() {
		at := int64(s.replicas.Moment())
		for before := place.last.Load(); before < at && !place.last.CompareAndSwap(before, at); {
			before = place.last.Load()
		}
		place.going.Add(-1)
	}
}

// writes reports whether requests with this permission change what is stored.
func (p permission) writes() bool {
	switch p {
	case pingSelf, leaveSelf, pingBulk, writeUser, actInCall, endCall, admin:
		return true
	default:
		return false
	}
}
