package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// TestAgreementExpires: namespaces are checked again after each interval, so that one which was deleted and created
// again by a server with other settings is not read as empty for long.
func TestAgreementExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var a agreements
		a.confirm("chat")
		go redisclient.Repeat(ctx, sampleEvery, a.expire())
		time.Sleep(sampleEvery - time.Second)
		require.True(t, a.current("chat"))
		time.Sleep(2 * time.Second)
		require.False(t, a.current("chat"))
		time.Sleep(2 * sampleEvery)
		cancel()
		synctest.Wait()
		require.EqualValues(t, 3, a.round.Load())
	})
}
