package redisstore_test

import (
	"testing"

	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestConformanceOnCluster(t *testing.T) {
	storetest.Run(t, opener(redistest.StartCluster(t, 0).URL(), 16))
}

func TestConformanceOnSentinel(t *testing.T) {
	storetest.Run(t, opener(redistest.StartSentinel(t).URL(), 1))
}
