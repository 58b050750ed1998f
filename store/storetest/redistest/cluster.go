package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// slots is the number of slots of a Cluster.
const slots = 16384

// Cluster is a Redis Cluster of redis-servers on this machine.
type Cluster struct {
	Primaries []*Process // in the order of their slots, which are divided evenly
	Replicas  []*Process // of the primary with the same index, if there are any
}

// QuickToFail returns the settings of a Cluster that notices within a second and a half that a node is down. With less,
// a busy machine makes it believe that of nodes that are up.
func QuickToFail() []string { return []string{"--cluster-node-timeout", "1500"} }

// StartCluster starts a Cluster of three primaries with no or one replica each. While a primary is down the others
// serve their slots. Each node has the settings that the functions return for it. See [StartProcess] for when the test
// is skipped.
func StartCluster(t testing.TB, replicas int, settings ...func() []string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 3 {
		c.Primaries = append(c.Primaries, startNode(t, settings))
	}
	for range 3 * replicas {
		c.Replicas = append(c.Replicas, startNode(t, settings))
	}
	c.join(t)
	for i, replica := range c.Replicas {
		id := c.id(t, c.Primaries[i])
		await(t, func() error { return replica.Client(t).ClusterReplicate(context.Background(), id).Err() })
	}
	for _, node := range c.nodes() {
		await(t, func() error { return c.formed(t, node) })
	}
	return c
}

func startNode(t testing.TB, more []func() []string) *Process {
	t.Helper()
	settings := []string{
		"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}
	for _, setting := range more {
		settings = append(settings, setting()...)
	}
	return StartProcess(t, settings...)
}

func (c *Cluster) nodes() []*Process { return slices.Concat(c.Primaries, c.Replicas) }

// join divides the slots and introduces every node to the first.
func (c *Cluster) join(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	for i, node := range c.nodes() {
		client := node.Client(t)
		check(t, client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i < len(c.Primaries) {
			first, next := i*slots/len(c.Primaries), (i+1)*slots/len(c.Primaries)
			check(t, client.ClusterAddSlotsRange(ctx, first, next-1).Err())
		}
		host, port, err := net.SplitHostPort(c.Primaries[0].Addr)
		check(t, err)
		check(t, client.ClusterMeet(ctx, host, port).Err())
	}
}

// formed returns nil when a node knows all others and all slots are served, by primaries and their replicas.
func (c *Cluster) formed(t testing.TB, node *Process) error {
	ctx, client := context.Background(), node.Client(t)
	defer client.Close()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	table, err := slotTable(client)
	if err != nil {
		return err
	}
	known := 0
	for _, span := range table {
		known += len(span.Nodes)
	}
	if !strings.Contains(info, "cluster_state:ok") ||
		!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d", slots)) ||
		known != len(c.nodes()) {
		return fmt.Errorf("the Cluster is not formed: %s", info)
	}
	return nil
}

func slotTable(client *redis.Client) ([]redis.ClusterSlot, error) {
	return client.ClusterSlots(context.Background()).Result() //nolint:staticcheck // its successor is not in Redis 6.2
}

// URL returns the address as a store URL that names all nodes.
func (c *Cluster) URL() string {
	return "redis+cluster://" + strings.Join(addrs(c.nodes()), ",")
}

func addrs(nodes []*Process) (all []string) {
	for _, node := range nodes {
		all = append(all, node.Addr)
	}
	return all
}

// Client returns a client of the Cluster, closed with the test.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(c.Primaries)})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Owner returns the primary that holds a key now.
func (c *Cluster) Owner(t testing.TB, key string) *Process {
	t.Helper()
	return c.owner(t, c.Slot(t, key))
}

// Next returns the primary after the one that holds a key now.
func (c *Cluster) Next(t testing.TB, key string) *Process {
	t.Helper()
	return c.Primaries[(slices.Index(c.Primaries, c.Owner(t, key))+1)%len(c.Primaries)]
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	slot, err := c.Primaries[0].Client(t).ClusterKeySlot(context.Background(), key).Result()
	check(t, err)
	return int(slot)
}

func (c *Cluster) owner(t testing.TB, slot int) *Process {
	t.Helper()
	table, err := slotTable(c.Primaries[0].Client(t))
	check(t, err)
	for _, span := range table {
		for _, node := range c.nodes() {
			if span.Start <= slot && slot <= span.End && node.Addr == span.Nodes[0].Addr {
				return node
			}
		}
	}
	t.Fatalf("no node owns slot %d", slot)
	return nil
}

func (c *Cluster) id(t testing.TB, node *Process) string {
	t.Helper()
	id, err := node.Client(t).Do(context.Background(), "CLUSTER", "MYID").Text()
	check(t, err)
	return id
}

// MoveSlot moves a slot to another primary as redis-cli --cluster reshard does. It calls between after each step: the
// announcement, the migration of the keys, and the change of owner.
func (c *Cluster) MoveSlot(t testing.TB, slot int, to *Process, between func()) {
	t.Helper()
	m := c.BeginMove(t, slot, to)
	between()
	for {
		keys, err := m.source.ClusterGetKeysInSlot(context.Background(), slot, 100).Result()
		check(t, err)
		if len(keys) == 0 {
			break
		}
		m.Keys(t, keys...)
	}
	between()
	m.End(t)
	between()
}

// Move is a slot on its way from one primary to another.
type Move struct {
	slot           int
	source, target *redis.Client
	host, port, id string // of the target
}

// BeginMove announces to both primaries that a slot moves. Then its keys can be moved one by one, before the move ends.
func (c *Cluster) BeginMove(t testing.TB, slot int, to *Process) *Move {
	t.Helper()
	ctx, from := context.Background(), c.owner(t, slot)
	m := &Move{slot: slot, source: from.Client(t), target: to.Client(t), id: c.id(t, to)}
	var err error
	m.host, m.port, err = net.SplitHostPort(to.Addr)
	check(t, err)
	check(t, m.target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(t, from)).Err())
	check(t, m.source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.id).Err())
	return m
}

// Keys moves keys of the slot.
func (m *Move) Keys(t testing.TB, keys ...string) {
	t.Helper()
	for _, key := range keys {
		check(t, m.source.Migrate(context.Background(), m.host, m.port, key, 0, awaitFor).Err())
	}
}

// End makes the target the owner of the slot.
func (m *Move) End(t testing.TB) {
	t.Helper()
	for _, node := range []*redis.Client{m.target, m.source} {
		check(t, node.Do(context.Background(), "CLUSTER", "SETSLOT", m.slot, "NODE", m.id).Err())
	}
}
