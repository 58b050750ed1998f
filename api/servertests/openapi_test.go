package servertests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/internal/testenv"
)

// TestGeneratedClient generates a client from the document with oapi-codegen and runs a program that uses it: see
// tools/client, which is its own module, so that its dependencies are not those of the project.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "it builds a client, which sends one request at a time")
	dir, source := t.TempDir(), "../../tools/client"
	for _, name := range []string{"go.mod", "go.sum", "config.yaml", "main.go"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), lastseen.OpenAPI("1"), 0o600))
	goRun := func(args ...string) {
		t.Helper()
		command := testenv.Command("go", args...)
		command.Dir = dir
		output, err := command.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, output)
	}
	goRun("tool", "oapi-codegen", "-config", "config.yaml", "openapi.yaml")
	goRun("run", ".", apitest.NewServer(t, kit.FileStore(t)).URL)
}
