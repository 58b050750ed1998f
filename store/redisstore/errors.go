package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	case redis.IsOOMError(err):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case isWrongType(err):
		return fmt.Errorf("%w: %w", store.ErrWrongType, err)
	case isOutage(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	default:
		return err
	}
}

// isWrongType recognises the error also from within a script, where Redis before 7 puts its own
// words in front.
func isWrongType(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.Contains(reply.Error(), "WRONGTYPE")
}

// isOutage reports whether Redis could not be reached, was late, or refused to serve for now. With a
// Redis that hangs, callers also wait in vain for a connection.
func isOutage(err error) bool {
	var netErr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return true
	}
	for _, prefix := range refusals {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// refusals begin the replies of a Redis that is up but cannot serve: see the errors documented for
// replication, persistence, cluster and ACL.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY",
	"NOAUTH", "WRONGPASS", "NOPERM", "max number of clients", "unknown command", "UNKILLABLE",
}
