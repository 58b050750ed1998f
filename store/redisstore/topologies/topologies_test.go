// Package topologies has the tests of how stores reach Redis: of topologies, TLS, replicas and outages.
package topologies

import (
	"testing"

	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestMain(m *testing.M) { stores.Run(m) }
