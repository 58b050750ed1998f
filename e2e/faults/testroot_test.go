//go:build faults

package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
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

// mountTmpfs mounts a small disk in memory until the test ends.
func mountTmpfs(t testing.TB) *disk {
	t.Helper()
	requireRoot(t, "mount")
	dir := t.TempDir()
	runCommand(t, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", tmpfsMegabytes), "tmpfs", dir)
	t.Cleanup(func() { runCommand(t, "umount", dir) })
	return &disk{dir: dir}
}

// disk is one in memory, or an ext4 on a loop device, which becomes read-only after an error as Debian's do.
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

// fail makes the kernel find an error in the file system, and so make it read-only. No flush is in progress then: Linux
// may report as done what such an error interrupts (see docs/decisions/data-file.md).
func (d *disk) fail(t testing.TB) {
	t.Helper()
	defer d.freeze(t)()
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

// island is a network namespace with two cables to this machine, on which nothing else is.
type island struct {
	name    string
	clients cable // for requests to its server
	redis   cable // for its server's connections to Redis
}

// cable is a pair of virtual interfaces.
type cable struct {
	device    string // the end on this machine
	here, far string // addresses
}

// newIsland makes a network namespace, until the test ends.
func newIsland(t testing.TB) *island {
	t.Helper()
	requireRoot(t, "ip")
	i := &island{name: fmt.Sprintf("lastseen-%d-%d", os.Getpid(), rand.IntN(1000))}
	runCommand(t, "ip", "netns", "add", i.name)
	t.Cleanup(func() { runCommand(t, "ip", "netns", "delete", i.name) }) // with both cables
	runCommand(t, "ip", "-n", i.name, "link", "set", "lo", "up")
	i.clients, i.redis = i.connect(t, 'c'), i.connect(t, 'r')
	return i
}

// connect adds a cable, with addresses from a range that is reserved for tests of networks.
func (i *island) connect(t testing.TB, kind rune) cable {
	t.Helper()
	net := fmt.Sprintf("198.18.%d.%d", rand.IntN(256), 4*rand.IntN(63))
	id := fmt.Sprintf("%c%d-%d", kind, os.Getpid()%100_000, rand.IntN(1000))
	c := cable{device: "h" + id, here: next(net, 1), far: next(net, 2)}
	runCommand(t, "ip", "link", "add", c.device, "type", "veth", "peer", "name", "n"+id, "netns", i.name)
	runCommand(t, "ip", "address", "add", c.here+"/30", "dev", c.device)
	runCommand(t, "ip", "-n", i.name, "address", "add", c.far+"/30", "dev", "n"+id)
	runCommand(t, "ip", "link", "set", c.device, "up")
	runCommand(t, "ip", "-n", i.name, "link", "set", "n"+id, "up")
	return c
}

// next returns an address after the first one of a network.
func next(network string, n byte) string {
	ip := net.ParseIP(network).To4()
	ip[3] += n
	return ip.String()
}

// startRedis starts a Redis on this machine. The URL is that in the namespace.
func (i *island) startRedis(t *testing.T) (redis *redistest.Process, url string) {
	t.Helper()
	redis = redistest.StartProcess(t, "--bind", "127.0.0.1", i.redis.here, "--protected-mode", "no")
	_, port, err := net.SplitHostPort(redis.Addr)
	require.NoError(t, err)
	return redis, "redis://" + net.JoinHostPort(i.redis.here, port)
}

// startServer starts a server in the namespace.
func (i *island) startServer(t testing.TB, url string, args ...string) *server {
	t.Helper()
	s := newServer(t, i.clients.far, url, append(args, "--auth", "none")...)
	s.prefix = []string{"ip", "netns", "exec", i.name}
	s.start(t)
	return s
}

// unplug makes everything sent over the cable disappear.
func (c cable) unplug(t testing.TB) { runCommand(t, "ip", "link", "set", c.device, "down") }

func (c cable) plug(t testing.TB) { runCommand(t, "ip", "link", "set", c.device, "up") }
