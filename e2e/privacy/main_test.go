package privacy

import (
	"os"
	"testing"

	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }
