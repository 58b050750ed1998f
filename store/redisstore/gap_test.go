package redisstore_test

import (
	"testing"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestGaps(t *testing.T) {
	for _, unit := range []redisstore.Unit{redisstore.Milliseconds, redisstore.Seconds} {
		t.Run(string(unit), func(t *testing.T) {
			storetest.Gaps(t, func(gap func(string, time.Duration)) store.Store {
				return newStore(t, redisstore.Options{
					URL: redistest.Start(t), Unit: unit, Gap: gap, Timeout: longTimeout, DialTimeout: longTimeout,
				})
			})
		})
	}
}
