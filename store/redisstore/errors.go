package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// translate turns errors of go-redis into those of the contract. A caller's own cancellation stays as it is. An error
// that is not a reply of Redis arose on the way to it: a lost connection, a certificate, a pool exhausted by callers of
// a hanging Redis, or another service at its address.
func translate(err error) error {
	reply := replyError(err)
	isRefusal := func(refusal string) bool { return strings.HasPrefix(reply, refusal) }
	var meaning error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case strings.HasPrefix(reply, "OOM "):
		meaning = store.ErrFull
	case strings.HasPrefix(reply, "WRONGTYPE "):
		meaning = store.ErrWrongType
	case reply == "" || slices.ContainsFunc(refusals, isRefusal):
		meaning = store.ErrUnavailable
	default:
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// replyError returns the error that Redis replied with, beginning with its code; "" if it is not from Redis. Before
// version 7 Redis puts a text in front of an error within a script:
//
//	ERR Error running script (call to f_ab): @user_script:33: @user_script: 33: -OOM command …
func replyError(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text, within := strings.CutPrefix(reply.Error(), "ERR ")
	const place = "@user_script:"
	if at := strings.LastIndex(text, place); within && at >= 0 && strings.HasPrefix(text, "Error running script") {
		_, text, _ = strings.Cut(text[at+len(place):], ": ")
	}
	return strings.TrimPrefix(text, "-")
}

// isOfKey reports whether an error is about one key rather than the server.
func isOfKey(err error) bool {
	forbidden := strings.HasPrefix(replyError(err), "NOPERM") && strings.Contains(replyError(err), " key")
	return forbidden || errors.Is(err, store.ErrWrongType)
}

// refusals are how replies begin if Redis is up but cannot serve: see the errors documented for replication,
// persistence, cluster and ACL.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY",
	"NOAUTH", "WRONGPASS", "NOPERM", "max number of clients", "unknown command", "UNKILLABLE",
	"DB index is out of range", "invalid DB index", // the database in the URL
	"The user executing the script can't", "ACL failure in script", // NOPERM, of 7.0 and of later versions
	"MOVED", "ASK", "CROSSSLOT", // a Cluster that changes faster than the client follows, or one behind a redis:// URL
	"This instance has cluster support disabled",
	"redis: nil", // from Sentinels that do not know the primary's name; our calls never ask for a single value
}
