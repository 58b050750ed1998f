//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// requireRoot skips a test that mounts disks or makes networks where it cannot. The commands are those that it runs.
func requireRoot(t testing.TB, commands ...string) {
	t.Helper()
	missing := testenv.Command("unshare", "--mount", "--net", "true").Run() // fails without the right to
	for _, command := range commands {
		_, err := exec.LookPath(command)
		missing = errors.Join(missing, err)
	}
	if missing != nil {
		testenv.Missing(t, "root", missing)
	}
}

// runCommand runs a command that must succeed and returns its output.
func runCommand(t testing.TB, command ...string) string {
	t.Helper()
	out, err := testenv.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(command, " "), out)
	return strings.TrimSpace(string(out))
}

// tmpfsMegabytes is the size of a disk in memory.
const tmpfsMegabytes = 4

// mountTmpfs mounts a small disk in memory until the test ends, and returns its folder.
func mountTmpfs(t testing.TB) (dir string) {
	t.Helper()
	requireRoot(t, "mount")
	dir = t.TempDir()
	runCommand(t, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", tmpfsMegabytes), "tmpfs", dir)
	t.Cleanup(func() { runCommand(t, "umount", dir) })
	return dir
}

// disk is an ext4 on a loop device, which becomes read-only after an error as Debian's do.
type disk struct {
	dir, image string
	sysfs      string // the kernel's folder of the file system; empty while the disk is not mounted
}

// mountDisk makes a disk and mounts it until the test ends.
func mountDisk(t testing.TB) *disk {
	t.Helper()
	requireRoot(t, "mount", "mkfs.ext4", "e2fsck", "fsfreeze", "findmnt")
	d := &disk{dir: t.TempDir(), image: filepath.Join(t.TempDir(), "image")}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 32<<20))
	runCommand(t, "mkfs.ext4", "-q", "-F", d.image)
	d.mount(t)
	t.Cleanup(func() { d.unmount(t) })
	return d
}

func (d *disk) mount(t testing.TB) {
	t.Helper()
	runCommand(t, "mount", "-o", "loop,errors=remount-ro", d.image, d.dir)
	d.sysfs = filepath.Join("/sys/fs/ext4", filepath.Base(runCommand(t, "findmnt", "-n", "-o", "SOURCE", d.dir)))
}

// unmount returns when the kernel has let go of the file system. A container that starts meanwhile has a copy of the
// mount for a moment, and the disk, mounted again, would still be the read-only one.
func (d *disk) unmount(t testing.TB) {
	t.Helper()
	if d.sysfs == "" {
		return
	}
	runCommand(t, "umount", d.dir)
	await(t, "the end of "+d.sysfs, func() bool {
		_, err := os.Stat(d.sysfs)
		return errors.Is(err, os.ErrNotExist)
	})
	d.sysfs = ""
}

// freeze makes every write to the disk hang until thaw, which is called at the latest when the test ends.
func (d *disk) freeze(t testing.TB) (thaw func()) {
	t.Helper()
	runCommand(t, "fsfreeze", "--freeze", d.dir)
	thaw = sync.OnceFunc(func() { runCommand(t, "fsfreeze", "--unfreeze", d.dir) })
	t.Cleanup(thaw)
	return thaw
}

// fail makes the kernel find an error in the file system, and so make it read-only.
func (d *disk) fail(t testing.TB) {
	t.Helper()
	trigger := filepath.Join(d.sysfs, "trigger_fs_error")
	require.NoError(t, os.WriteFile(trigger, []byte("a fault of a test"), 0o200))
}

// repair checks the file system, and mounts it again.
func (d *disk) repair(t testing.TB) {
	t.Helper()
	d.unmount(t)
	out, err := testenv.Command("e2fsck", "-f", "-y", d.image).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // it corrected errors
		err = nil
	}
	require.NoError(t, err, "%s", out)
	d.mount(t)
}
