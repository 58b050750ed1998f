package redisclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// Translate turns errors of go-redis into those of the contract. A caller's own cancellation stays as it is. An error
// that is not a reply of Redis arose on the way to it: a lost connection, a certificate, a pool exhausted by callers of
// a hanging Redis, or another service at its address.
func Translate(err error) error {
	reply := ReplyError(err)
	isRefusal := func(r refusal) bool { return strings.HasPrefix(reply, r.begins) }
	known := slices.IndexFunc(refusals, isRefusal)
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
	case known >= 0 && refusals[known].advice != "":
		return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, refusals[known].advice, err)
	case reply == "" || known >= 0:
		meaning = store.ErrUnavailable
	default:
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// ReplyError returns the error that Redis replied with, beginning with its code; "" if it is not from Redis. Before
// version 7 Redis puts a text in front of an error within a script:
//
//	ERR Error running script (call to f_ab): @user_script:33: @user_script: 33: -OOM command …
func ReplyError(err error) string {
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

// IsOfKey reports whether an error is about one key rather than the server.
func IsOfKey(err error) bool {
	forbidden := strings.HasPrefix(ReplyError(err), "NOPERM") && strings.Contains(ReplyError(err), " key")
	return forbidden || errors.Is(err, store.ErrWrongType)
}

// refusal is how a reply begins if Redis is up but cannot serve, and the setting to change if that is the reason.
type refusal struct{ begins, advice string }

// refusals are those documented for replication, persistence, cluster and ACL. A wrong setting is not fatal: it can be
// another server's, or that of a password that is being replaced.
var refusals = []refusal{
	{"WRONGPASS", wrongUser},
	{"NOAUTH", wrongUser},
	{"invalid password", wrongUser},
	{"NOPERM", noRights},
	{"The user executing the script can't", noRights},
	{"ACL failure in script", noRights},
	{"Unknown Redis command called from", "this Redis lacks a command, see rename-command in its configuration"},
	{"DB index is out of range", wrongDatabase},
	{"invalid DB index", wrongDatabase},
	{"This instance has cluster support disabled", "this Redis is not a Cluster: begin --store with redis://"},
	{"redis: nil", "the Sentinels do not know the primary: correct master in --store"}, // we never ask for one value
	{"MOVED", wrongCluster},
	{"CROSSSLOT", wrongCluster},
	{"LOADING", ""},
	{"READONLY", ""},
	{"MASTERDOWN", ""},
	{"CLUSTERDOWN", ""},
	{"TRYAGAIN", ""},
	{"NOREPLICAS", ""},
	{"MISCONF", ""},
	{"BUSY", ""},
	{"UNKILLABLE", ""},
	{"ASK", ""},
	{"max number of clients", ""},
	{"unknown command", ""},
}

// What to do about refusals.
const (
	wrongUser     = "Redis refuses the user or the password: correct them in --store"
	noRights      = "the Redis user in --store lacks a right: docs/redis.md lists those it needs"
	wrongDatabase = "this Redis does not have the database: correct its number in --store"
	wrongCluster  = "this Redis is a Cluster that is changing, or --store does not begin with redis+cluster://"
)
