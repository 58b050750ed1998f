// Package changestests has the tests of following changes over HTTP.
package changestests

import (
	"testing"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

func TestMain(m *testing.M) { kit.Run(m) }
