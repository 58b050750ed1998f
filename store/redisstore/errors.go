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

// errTimeout is the cause when Redis did not answer within Options.Timeout.
var errTimeout = errors.New("redis did not answer in time")

// translate turns what go-redis returns into the contract's errors. A caller's own cancellation
// stays what it is.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case strings.HasPrefix(said(err), "OOM "):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case strings.HasPrefix(said(err), "WRONGTYPE "):
		return fmt.Errorf("%w: %w", store.ErrWrongType, err)
	case isOutage(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	default:
		return err
	}
}

// said returns the error that Redis replied with, its code first; "" if it is none of Redis' errors.
// Before version 7 Redis puts its own words in front of an error within a script:
//
//	ERR Error running script (call to f_ab): @user_script:33: @user_script: 33: -OOM command …
func said(err error) string {
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

// isOutage reports whether Redis could not be reached, was late, or refused to serve for now. What is
// no reply of Redis came from the way to it: a lost connection, a certificate, a pool in which callers
// of a hanging Redis wait in vain, or something else that listens at its address.
func isOutage(err error) bool {
	reply := said(err)
	if reply == "" {
		return true
	}
	return slices.ContainsFunc(refusals, func(refusal string) bool { return strings.HasPrefix(reply, refusal) })
}

// isOfKey reports whether an error is about one key and not about the server.
func isOfKey(err error) bool {
	forbidden := strings.HasPrefix(said(err), "NOPERM") && strings.Contains(said(err), " key")
	return forbidden || errors.Is(err, store.ErrWrongType)
}

// refusals begin the replies of a Redis that is up but cannot serve: see the errors documented for
// replication, persistence, cluster and ACL.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY",
	"NOAUTH", "WRONGPASS", "NOPERM", "max number of clients", "unknown command", "UNKILLABLE",
	"DB index is out of range", "invalid DB index", // the database in the URL
	"The user executing the script can't", "ACL failure in script", // NOPERM, of 7.0 and of later versions
	"MOVED", "ASK", "CROSSSLOT", // a Cluster that changes faster than it is followed, or one that the URL does not call so
	"This instance has cluster support disabled",
	"redis: nil", // said by Sentinels that do not know the primary's name; no call of ours asks for a lone value
}
