// Package keys has the tests of what Redis keeps besides users: devices, availability, contacts, disconnects and
// leases; and of sets that other programs write.
package keys

import (
	"testing"

	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestMain(m *testing.M) { stores.Run(m) }
