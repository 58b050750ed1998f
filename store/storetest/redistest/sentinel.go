package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the primary in the Sentinels of [StartSentinel].
const MasterName = "lastseen"

// Sentinel is a primary and its replicas, monitored by three Sentinels, all on this machine.
type Sentinel struct {
	Nodes     []*Process // the first is the primary at the start
	Sentinels []*Process
}

// StartSentinel starts a primary with a replica and three Sentinels, and waits until they have found each other. The
// primary counts as down after half a second. The settings are for the two servers. See [StartProcess] for when the
// test is skipped.
func StartSentinel(t testing.TB, settings ...string) *Sentinel {
	t.Helper()
	return StartSentinelWith(t, 1, settings...)
}

// StartSentinelWith is [StartSentinel] with a number of replicas. A server that is started again is what the Sentinels
// last made it, a primary or a replica.
func StartSentinelWith(t testing.TB, replicas int, settings ...string) *Sentinel {
	t.Helper()
	settings = append([]string{"--repl-diskless-sync-delay", "0"}, settings...)
	s := &Sentinel{Nodes: []*Process{startWithFile(t, settings...)}}
	host, port, err := net.SplitHostPort(s.Nodes[0].Addr)
	check(t, err)
	for range replicas {
		s.Nodes = append(s.Nodes, startWithFile(t, append([]string{"--replicaof", host, port}, settings...)...))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, StartOneSentinel(t, s.Nodes[0].Addr))
	}
	await(t, func() error {
		_, _, err := s.Settled()
		return err
	})
	return s
}

// startWithFile is [StartProcess] with the settings in a file, in which Sentinels keep whose replica the server is.
func startWithFile(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := newProcess(t, settings...)
	var text strings.Builder
	for _, arg := range p.args {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			text.WriteString("\n" + name)
		} else {
			fmt.Fprintf(&text, " %q", arg)
		}
	}
	file := filepath.Join(t.TempDir(), "redis.conf")
	check(t, os.WriteFile(file, []byte(text.String()+"\n"), 0o600))
	p.args = []string{file}
	p.Start(t)
	return p
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

// Settled returns the primary, and the number that the Sentinels gave its configuration, which each failover changes.
// It returns an error unless all Sentinels agree on both and consider all servers up, and all replicas follow the
// primary and have its data.
func (s *Sentinel) Settled() (primary *Process, epoch string, err error) {
	for _, sentinel := range s.Sentinels {
		master, err := s.master(sentinel)
		switch {
		case err != nil:
			return nil, "", err
		case epoch != "" && epoch != master["config-epoch"]:
			return nil, "", errors.New("the Sentinels disagree")
		}
		epoch = master["config-epoch"]
	}
	primary = s.Primary()
	for _, node := range s.Nodes {
		if err := s.inOrder(node, node == primary); err != nil {
			return nil, "", err
		}
	}
	return primary, epoch, nil
}

// master returns what a Sentinel knows of the primary, or an error unless it knows the other two and the replicas, and
// considers the primary up.
func (s *Sentinel) master(sentinel *Process) (map[string]string, error) {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, MaxRetries: -1})
	master, err := client.Master(context.Background(), MasterName).Result()
	if err = errors.Join(err, client.Close()); err != nil {
		return nil, err
	}
	if master["num-other-sentinels"] != "2" || master["num-slaves"] != strconv.Itoa(len(s.Nodes)-1) ||
		master["flags"] != "master" {
		return nil, fmt.Errorf("the Sentinel knows %v", master)
	}
	return master, nil
}

// inOrder returns nil when a server is the primary with all replicas, or a replica with all data.
func (s *Sentinel) inOrder(node *Process, primary bool) error {
	client := redis.NewClient(&redis.Options{Addr: node.Addr, MaxRetries: -1})
	info, err := client.Info(context.Background(), "replication").Result()
	if err = errors.Join(err, client.Close()); err != nil {
		return err
	}
	right := strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	if primary {
		right = strings.Contains(info, "role:master") && strings.Count(info, "state=online") == len(s.Nodes)-1
	}
	if !right {
		return fmt.Errorf("the server is a primary: %t, but says %s", primary, info)
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
