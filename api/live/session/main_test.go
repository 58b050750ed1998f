package session

import (
	"testing"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

func TestMain(m *testing.M) { kit.Run(m) }
