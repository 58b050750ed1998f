// Package servertests has the tests of what requests share: bodies, cursors, errors, limits, logs, origins, and of the
// pages.
package servertests

import (
	"testing"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

func TestMain(m *testing.M) { kit.Run(m) }
