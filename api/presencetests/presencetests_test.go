// Package presencetests has the tests of users: pings, statuses, lists, contacts, devices, availability and calls, and
// of who sees them.
package presencetests

import (
	"testing"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

func TestMain(m *testing.M) { kit.Run(m) }
