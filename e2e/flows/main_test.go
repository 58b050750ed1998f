package flows

import (
	"os"
	"testing"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m, testbrowser.End)) }

// alice is the path of a user.
const alice = testserver.Alice

// step is a step of a browser.
type step = testbrowser.Step

// until is [testbrowser.Until].
func until(expression string) testbrowser.Step { return testbrowser.Until(expression) }
