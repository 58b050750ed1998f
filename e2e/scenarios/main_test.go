package scenarios

import (
	"os"
	"testing"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m, testbrowser.End)) }

const alice = testserver.Alice

type step = testbrowser.Step

func until(expression string) testbrowser.Step { return testbrowser.Until(expression) }
