package deploy_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

const unit = "systemd/lastseen.service"

// TestUnitPassesSystemd checks the unit with systemd's own tools: they refuse unknown settings, and rate what the
// service could do. The exposure is at most 2.0 of 10; systemd calls less than 5 "OK".
func TestUnitPassesSystemd(t *testing.T) {
	program := testenv.Program(t, "systemd-analyze", "systemd")
	self, err := os.Executable() // which has to exist
	require.NoError(t, err)
	content := strings.Replace(string(read(t, unit)), "/usr/local/bin/lastseen", self, 1)
	require.Contains(t, content, "ExecStart="+self)
	path := testserver.WriteFile(t, "lastseen.service", []byte(content))
	require.Empty(t, run(t, filepath.Dir(path), program, "verify", "--man=no", path), "warnings")
	run(t, filepath.Dir(path), program, "security", "--no-pager", "--offline=true", "--threshold=20", path)
}

func TestSysusersPassesSystemd(t *testing.T) {
	sysusers := testenv.Program(t, "systemd-sysusers", "systemd")
	path, err := filepath.Abs("systemd/lastseen.sysusers")
	require.NoError(t, err)
	run(t, t.TempDir(), sysusers, "--dry-run", path)
}

func TestUnitAgrees(t *testing.T) {
	user := find(t, "systemd/lastseen.sysusers", `(?m)^u (\S+) - `)
	require.Equal(t, user, find(t, unit, `(?m)^User=(\S+)$`))
	require.Equal(t, user, find(t, unit, `(?m)^Group=(\S+)$`))
	folder := find(t, unit, `(?m)^WorkingDirectory=(\S+)$`)
	require.Equal(t, "/var/lib/"+find(t, unit, `(?m)^StateDirectory=(\S+)$`), folder)
	require.Equal(t, folder, find(t, "systemd/lastseen.sysusers", `(?m)" (\S+)$`))
	seconds, err := strconv.Atoi(find(t, unit, `(?m)^TimeoutStopSec=(\d+)$`))
	require.NoError(t, err)
	require.Greater(t, seconds, stopSeconds)
	require.NotRegexp(t, `(?m)^[^#]*LASTSEEN_AUTH`, string(read(t, unit)), "full access is never the default")
}
