package testserver

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// programs are what the tests of a package have built.
var programs struct {
	begun string // working directory at the start, which is in this module
	dir   string // where they are

	mu    sync.Mutex
	built map[string]func() (string, error) // by folder
}

// Main runs the tests of a package, and returns the exit code. At the end, it calls some functions and removes the
// programs that the tests have built. Servers do not see the variables LASTSEEN_* with which a developer runs lastseen.
func Main(m *testing.M, ends ...func()) int {
	var err error
	if programs.begun, err = os.Getwd(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LASTSEEN_") && !strings.HasPrefix(name, "LASTSEEN_TEST_") {
			os.Unsetenv(name)
		}
	}
	programs.built = map[string]func() (string, error){}
	// Tests run several servers on one machine, beside others that may use the default address.
	os.Setenv("LASTSEEN_ADMIN_LISTEN", "off")
	testenv.WaitInParallel()
	if programs.dir, err = os.MkdirTemp("", "lastseen-test-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, end := range ends {
			end()
		}
		_ = os.RemoveAll(programs.dir)
	}()
	return m.Run()
}

// Build returns the path of a program of this module, such as "examples/chat". The first test that asks for a program
// builds it, with the race detector and the tag faults if the tests have them.
func Build(t testing.TB, folder string) string {
	t.Helper()
	require.NotEmpty(t, programs.begun, "TestMain has to call testserver.Main")
	programs.mu.Lock()
	if programs.built[folder] == nil {
		file := filepath.Join(programs.dir, path.Base(folder))
		programs.built[folder] = sync.OnceValues(func() (string, error) { return file, build(file, folder) })
	}
	built := programs.built[folder]
	programs.mu.Unlock()
	file, err := built()
	require.NoError(t, err)
	return file
}

func build(file, folder string) error {
	command := testenv.Command("go", "build", fmt.Sprintf("-race=%t", testenv.Race), "-tags="+tags, "-o", file,
		"github.com/lastseen/lastseen/"+folder)
	command.Dir = programs.begun
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", folder, err, out)
	}
	return nil
}

// Binary returns the path of lastseen. The first test that asks for it builds it.
func Binary(t testing.TB) string {
	t.Helper()
	return Build(t, "cmd/lastseen")
}
