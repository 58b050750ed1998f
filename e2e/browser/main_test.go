package browser

import (
	"os"
	"testing"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) {
	os.Exit(testserver.Main(m, testbrowser.End))
}

const alice = testserver.Alice

type browser = testbrowser.Browser

type step = testbrowser.Step

func until(expression string) testbrowser.Step { return testbrowser.Until(expression) }
