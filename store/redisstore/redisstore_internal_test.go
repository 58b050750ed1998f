package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAgreementExpires: every sample also forgets which namespaces were checked, so that one which was
// deleted and created again by a server with other settings is not read as empty for long.
func TestAgreementExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		sampled, expired := 0, 0
		go repeat(ctx, sampleEvery, func(context.Context) { sampled++ }, func() { expired++ })
		time.Sleep(3*sampleEvery + time.Second)
		cancel()
		synctest.Wait()
		require.Equal(t, 3, expired)
		require.Equal(t, 4, sampled, "at once, too")
	})
}
