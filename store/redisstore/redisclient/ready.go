package redisclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// TryWriting does a write that changes nothing on each primary, and returns an error for each. It is nil if the write
// succeeded and would not be lost.
func (c *Client) TryWriting(ctx context.Context) []error {
	return c.ForEachPrimary(ctx, c.writeNothing)
}

// writeNothing does a write that changes nothing, and returns an error if that fails or would be lost.
func (c *Client) writeNothing(ctx context.Context, client *redis.Client, key string) error {
	err := Translate(scripts.Probe.Run(Confirmed(ctx), client, []string{key}).Err())
	if err == nil {
		err = checkPrimary(ctx, client)
	}
	if errors.Is(err, context.Canceled) { // by the caller or by Close, which says nothing about the server
		return err
	}
	value, message := "", "this Redis takes no writes"
	switch {
	case errors.Is(err, errReplica) || strings.HasPrefix(ReplyError(err), "READONLY"):
		value, message = "replica", "this Redis is a replica: it takes no writes, and its replies may be old"
	case err != nil:
		value = "refused"
	}
	server := c.nameOf(client)
	c.Log.LogOnce(slog.LevelWarn, server, "ready", value, message, "server", server, "error", err)
	return err
}

// errReplica is the error of a replica that accepts writes.
var errReplica = errors.New("redis is a replica: what is written to it is lost")

// checkPrimary returns an error if a server is a replica, or cannot be asked. If the user may not ask, it is taken to
// be a primary.
func checkPrimary(ctx context.Context, client *redis.Client) error {
	info, err := ReadInfo(ctx, client, "replication")
	if err == nil && info["role"] == "slave" {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errReplica)
	}
	return Translate(err)
}
