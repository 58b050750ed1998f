// Package sockettests has the tests of WebSockets.
package sockettests

import (
	"testing"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

func TestMain(m *testing.M) { kit.Run(m) }
