package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func TestEncoding(t *testing.T) {
	e := encoding{unit: Milliseconds}
	for state, want := range map[lastseen.State]string{
		{At: 1}: "1", {At: 1, Left: true}: "-1",
		{At: 1_700_000_000_123}: "1700000000123", {At: lastseen.MaxInstant, Left: true}: "-253402300799999",
	} {
		require.Equal(t, want, e.score(state))
		back, err := e.stateOfReply(want)
		require.NoError(t, err)
		require.Equal(t, state, back)
	}
	for _, invalid := range []float64{
		0, 0.9, -0.5, 253402300800000, -253402300800000, 1 << 52, 1<<52 + 5, -(1 << 52),
		1e300, -1e300, math.Inf(1), math.Inf(-1),
	} {
		require.Equal(t, lastseen.State{}, e.state(invalid), invalid)
	}
	for _, strange := range []any{"x", 5, []any{}} {
		_, err := e.stateOfReply(strange)
		require.Error(t, err)
	}
	state, err := e.stateOfReply(nil)
	require.NoError(t, err)
	require.Equal(t, lastseen.State{}, state, "no member, no state")
	low, high := e.bounds(lastseen.Range{From: 5, To: 9, Left: true})
	require.Equal(t, []string{"-9", "-5"}, []string{low, high})
	low, high = e.bounds(lastseen.Range{From: 5, To: 9})
	require.Equal(t, []string{"5", "9"}, []string{low, high})
}

// TestSeconds: every time we write is found again, and whatever others write belongs to one millisecond.
func TestSeconds(t *testing.T) {
	e := encoding{unit: Seconds, shared: true}
	for at, want := range map[lastseen.Instant]string{
		1: "0.001", 1000: "1", 100_123_000: "100123", 1_700_000_000_123: "1700000000.123",
		lastseen.MaxInstant: "253402300799.999",
	} {
		require.Equal(t, want, e.time(at))
	}
	for text, want := range map[string]lastseen.Instant{
		"1700000000.1239999": 1_700_000_000_123, "1700000000.1230001": 1_700_000_000_123,
		"1700000000.9999995": 1_700_000_000_999,
		"1.0009999999":       1000, "0.0019": 1, "1700000000.1229": 1_700_000_000_122,
		"1700000000.1229999065": 1_700_000_000_123,
	} {
		state, err := e.stateOfReply(text)
		require.NoError(t, err)
		require.Equal(t, lastseen.State{At: want}, state, text)
	}
	for _, invalid := range []float64{
		0, 0.0009, -0.0009, 253402300800, -253402300800, 1 << 52, 1e300, math.Inf(1),
		math.Inf(-1),
	} {
		require.Equal(t, lastseen.State{}, e.state(invalid), invalid)
	}
	rapid.Check(t, func(t *rapid.T) {
		state := lastseen.State{
			At: lastseen.Instant(
				rapid.Int64Range(int64(lastseen.MinInstant), int64(lastseen.MaxInstant)).Draw(t, "at")),
			Left: rapid.Bool().Draw(t, "left"),
		}
		f, err := strconv.ParseFloat(e.score(state), 64)
		require.NoError(t, err)
		require.Equal(t, state, e.state(f))
		before := e.state(math.Nextafter(f, 0))
		require.True(t, !before.Known() || before.At == state.At-1, "the float64 below is the millisecond before")
	})
}

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
		require.ErrorIs(t, translate(c.err), c.want, "%v", c.err)
	}
	for _, unknown := range []error{
		reply("ERR something new"),
		reply("ERR Error running script (call to f_ab): @user_script:9: user_script:9: attempt to index a nil value"),
		reply("ERR the user said WRONGTYPE and OOM"),
	} {
		require.Equal(t, unknown, translate(unknown), "a defect is not called an outage")
	}
}
