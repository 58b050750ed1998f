package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the primary in the Sentinels of [StartSentinel].
const MasterName = "lastseen"

// Sentinel is a primary and a replica, monitored by three Sentinels, all on this machine.
type Sentinel struct {
	Nodes     [2]*Process // the first is the primary at the start
	Sentinels []*Process
}

// StartSentinel starts a primary with a replica and three Sentinels, and waits until they have found each other. The
// primary counts as down after half a second. The settings are for the two servers. See [StartProcess] for when the
// test is skipped.
func StartSentinel(t testing.TB, settings ...string) *Sentinel {
	t.Helper()
	settings = append([]string{"--repl-diskless-sync-delay", "0"}, settings...)
	s := &Sentinel{}
	s.Nodes[0] = StartProcess(t, settings...)
	host, port, err := net.SplitHostPort(s.Nodes[0].Addr)
	check(t, err)
	s.Nodes[1] = StartProcess(t, append([]string{"--replicaof", host, port}, settings...)...)
	for range 3 {
		s.Sentinels = append(s.Sentinels, StartOneSentinel(t, s.Nodes[0].Addr))
	}
	for _, sentinel := range s.Sentinels {
		await(t, func() error { return s.formed(sentinel) })
	}
	await(t, func() error { return synchronised(t, s.Nodes[0]) })
	return s
}

// synchronised returns nil when a primary has a replica with all its data.
func synchronised(t testing.TB, primary *Process) error {
	client := primary.Client(t)
	defer client.Close()
	info, err := client.Info(context.Background(), "replication").Result()
	if err == nil && !strings.Contains(info, "state=online") {
		err = fmt.Errorf("no replica: %s", info)
	}
	return err
}

// StartOneSentinel starts a Sentinel that monitors the server at an address, with additional lines in its
// configuration. See [StartProcess] for when the test is skipped.
func StartOneSentinel(t testing.TB, primary string, settings ...string) *Process {
	t.Helper()
	p := newProcess(t)
	_, own, err := net.SplitHostPort(p.Addr)
	check(t, err)
	host, port, err := net.SplitHostPort(primary)
	check(t, err)
	file := filepath.Join(t.TempDir(), "sentinel.conf") // a Sentinel writes its findings to it
	check(t, os.WriteFile(file, fmt.Appendf(nil, `port %s
bind 127.0.0.1
logfile ""
loglevel warning
sentinel monitor %[2]s %s %s 2
sentinel down-after-milliseconds %[2]s 500
sentinel failover-timeout %[2]s 3000
%[5]s
`, own, MasterName, host, port, strings.Join(settings, "\n")), 0o600))
	p.args = []string{file, "--sentinel"}
	p.Start(t)
	return p
}

// formed returns nil when a Sentinel knows the other two and the replica.
func (*Sentinel) formed(sentinel *Process) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, MaxRetries: -1})
	master, err := client.Master(context.Background(), MasterName).Result()
	if err = errors.Join(err, client.Close()); err != nil {
		return err
	}
	if master["num-other-sentinels"] != "2" || master["num-slaves"] != "1" || master["flags"] != "master" {
		return fmt.Errorf("the Sentinel knows %v", master)
	}
	return nil
}

// Primary returns the server that most Sentinels consider the primary; nil while they disagree.
func (s *Sentinel) Primary() *Process {
	votes := map[string]int{}
	for _, sentinel := range s.Sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, MaxRetries: -1})
		addr, err := client.GetMasterAddrByName(context.Background(), MasterName).Result()
		if errors.Join(err, client.Close()) == nil {
			votes[net.JoinHostPort(addr[0], addr[1])]++
		}
	}
	for _, node := range s.Nodes {
		if votes[node.Addr] >= 2 {
			return node
		}
	}
	return nil
}

// URL returns the addresses of the Sentinels as a store URL.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(addrs(s.Sentinels), ",") + "?master=" + MasterName
}
