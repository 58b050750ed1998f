package redisstore_test

import (
	"testing"
	"time"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/presence"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestMain(m *testing.M) { stores.Run(m) }

// TestConformance runs as a Redis user who has the rights in docs/redis.md, and no others.
func TestConformance(t *testing.T) {
	_, url, client := stores.StartRedis(t)
	stores.Restrict(t, client)
	suite := storetest.Run
	if testenv.Race { // the rest is about what Redis does; the races of calls, feeds and details have tests here
		suite = storetest.RunCore
	}
	suite(t, stores.Opener(stores.AsApp(url), 1))
}

// TestConformanceInContainer tests a Redis as tests use it where there is no redis-server.
func TestConformanceInContainer(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, stores.Opener(redistest.StartContainer(t), 1))
}

// TestConformanceOfShards has an odd number of shards. A Cluster has 16 of them in TestOnCluster.
func TestConformanceOfShards(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, stores.Opener(redistest.Start(t), 7))
}

func TestGaps(t *testing.T) {
	for _, unit := range []redisstore.Unit{redisstore.Milliseconds, redisstore.Seconds} {
		t.Run(string(unit), func(t *testing.T) {
			presence.Gaps(t, func(gap func(string, time.Duration)) store.Store {
				return stores.New(t, redisstore.Options{URL: redistest.Start(t), Unit: unit, Gap: gap})
			})
		})
	}
}
