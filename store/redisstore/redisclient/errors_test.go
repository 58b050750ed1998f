package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// reply is an error as Redis sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		err, want error
	}{
		{nil, nil},
		{context.Canceled, context.Canceled},
		{context.DeadlineExceeded, store.ErrUnavailable},
		{fmt.Errorf("read: %w", io.EOF), store.ErrUnavailable},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, store.ErrUnavailable},
		{redis.ErrPoolTimeout, store.ErrUnavailable},
		{redis.ErrClosed, store.ErrClosed},
		{reply("LOADING Redis is loading the dataset in memory"), store.ErrUnavailable},
		{reply("READONLY You can't write against a read only replica."), store.ErrUnavailable},
		{reply("MASTERDOWN Link with MASTER is down"), store.ErrUnavailable},
		{reply("CLUSTERDOWN The cluster is down"), store.ErrUnavailable},
		{reply("NOAUTH Authentication required."), store.ErrUnavailable},
		{reply("NOPERM this user has no permissions"), store.ErrUnavailable},
		{reply("MISCONF Redis is configured to save RDB snapshots"), store.ErrUnavailable},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), store.ErrUnavailable},
		{reply("NOREPLICAS Not enough good replicas to write."), store.ErrUnavailable},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), store.ErrUnavailable},
		{reply("ERR DB index is out of range"), store.ErrUnavailable},
		{
			reply("ERR The user executing the script can't run this command or subcommand script: ab, on @user_script:35."),
			store.ErrUnavailable,
		},
		{
			reply("ERR ACL failure in script: User app has no permissions to run the 'zadd' command script: ab"),
			store.ErrUnavailable,
		},
		{reply("MOVED 5 127.0.0.1:7000"), store.ErrUnavailable},
		{reply("ASK 5 127.0.0.1:7000"), store.ErrUnavailable},
		{reply("ERR This instance has cluster support disabled"), store.ErrUnavailable},
		{fmt.Errorf("all sentinels specified in configuration are unreachable: %w", redis.Nil), store.ErrUnavailable},
		{errors.New("tls: failed to verify certificate"), store.ErrUnavailable},
		{reply("ERR unknown command 'ZMSCORE', with args beginning with:"), store.ErrUnavailable},
		{redis.ErrPoolExhausted, store.ErrUnavailable},
		{fmt.Errorf("write: %w", net.ErrClosed), store.ErrUnavailable},
		{reply("BUSY Redis is busy running a script."), store.ErrUnavailable},
		{reply("ERR max number of clients reached"), store.ErrUnavailable},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), store.ErrFull},
		{reply("WRONGTYPE Operation against a key"), store.ErrWrongType},
		{reply("ERR Error running script (call to f_ab): @user_script:13: WRONGTYPE Operation"), store.ErrWrongType},
		{
			reply("ERR Error running script (call to f_ab): @user_script:33: @user_script: 33: -OOM command not allowed"),
			store.ErrFull,
		},
		{
			reply("ERR Error running script (call to f_ab): @user_script:33: @user_script: 33: -READONLY You can't"),
			store.ErrUnavailable,
		},
		{
			reply("OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:33."),
			store.ErrFull,
		},
	} {
		require.ErrorIs(t, Translate(c.err), c.want, "%v", c.err)
	}
	for _, unknown := range []error{
		reply("ERR something new"),
		reply("ERR Error running script (call to f_ab): @user_script:9: user_script:9: attempt to index a nil value"),
		reply("ERR the user said WRONGTYPE and OOM"),
	} {
		require.Equal(t, unknown, Translate(unknown), "a defect is not called an outage")
	}
}
