package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lastseen/lastseen/client"
)

type loadCmd struct {
	inNamespace
	Pings   int           `default:"100" placeholder:"N" help:"Pings a second (default 100)."`
	Lookups int           `default:"100" placeholder:"N" help:"Lookups a second (default 100)."`
	Page    int           `default:"50" placeholder:"N" help:"Users of a lookup (default 50)."`
	Users   int           `default:"1000" placeholder:"N" help:"How many users ping and are looked up: load-0, load-1 and so on (default 1000). They are not deleted."`
	For     time.Duration `default:"10s" placeholder:"DURATION" help:"How long (default 10s)."`
	Yes     bool          `help:"Also if the server is not on this machine."`
}

// maxRequests is how many requests of a kind a load can have: the times of all of them are in memory.
const maxRequests = 10_000_000

// Validate implements [kong.Validatable].
func (cmd *loadCmd) Validate() error {
	switch most := max(cmd.Pings, cmd.Lookups); {
	case min(cmd.Pings, cmd.Lookups) < 0 || most < 1 || most > 100_000:
		return errors.New("--pings, --lookups: use 0 to 100000, one of them at least 1")
	case cmd.Page < 1 || cmd.Page > maxLookup:
		return fmt.Errorf("--page: use 1 to %d", maxLookup)
	case cmd.Users < 1 || cmd.Users > 10_000_000:
		return errors.New("--users: use 1 to 10000000")
	case cmd.For < time.Second || cmd.For.Seconds()*float64(most) > maxRequests:
		return fmt.Errorf("--for: use 1s or more, and at most %d requests", maxRequests)
	}
	u, err := url.Parse(cmd.Server.text())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && !ip.IsLoopback() && !cmd.Yes {
		return fmt.Errorf("%s is not this machine: to load it, use --yes", u.Hostname())
	}
	return nil
}

// Run sends pings and lookups at fixed rates, and prints how long they took.
func (cmd *loadCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connectWith(client.Options{Tries: 1, Timeout: loadPatience})
	if err != nil {
		return err
	}
	user := func() string { return "load-" + strconv.Itoa(rand.IntN(cmd.Users)) }
	loads := []*load{
		{kind: "pings", rate: cmd.Pings, send: func(ctx context.Context) error {
			_, err := c.PingUser(ctx, string(cmd.Namespace), user(), client.Ping{})
			return err
		}},
		{kind: "lookups", rate: cmd.Lookups, send: func(ctx context.Context) error {
			users := make([]string, min(cmd.Page, cmd.Users))
			first := rand.IntN(cmd.Users)
			for i := range users {
				users[i] = "load-" + strconv.Itoa((first+i)%cmd.Users)
			}
			_, err := c.LookupUsers(ctx, string(cmd.Namespace), users, client.Evaluate{})
			return err
		}},
	}
	loads = slices.DeleteFunc(loads, func(l *load) bool { return l.rate == 0 })
	var all sync.WaitGroup
	for _, l := range loads {
		all.Go(func() { l.run(ctx, cmd.For) })
	}
	all.Wait()
	t := cmd.table(std, "", "SENT", "FAILED", "A SECOND", "P50", "P90", "P99", "MAX")
	for _, l := range loads {
		r := l.result()
		if err := t.row(r, r.cells()...); err != nil {
			return err
		}
	}
	return errors.Join(t.end(), failures(std, loads))
}

// failures prints why requests failed, and returns an error if some did.
func failures(std Streams, loads []*load) error {
	failed := false
	for _, l := range loads {
		for _, code := range slices.Sorted(maps.Keys(l.failures)) {
			failed = true
			f := l.failures[code]
			fmt.Fprintf(std.Err, "lastseen: %d %s failed, the first with %s\n", f.times, l.kind, Message(f.first))
		}
		if l.late > 0 {
			failed = true
			fmt.Fprintf(std.Err, "lastseen: %d %s were not sent: the server was %s behind\n",
				l.late, l.kind, loadPatience)
		}
	}
	if failed {
		return errors.New("not all requests succeeded")
	}
	return nil
}

const (
	// loadPatience is how long a request waits for its response, or for being sent.
	loadPatience = 10 * time.Second
	// maxInFlight is how many requests of a kind wait for their responses at once. A client keeps as many connections.
	maxInFlight = 64
)

// load sends requests at a rate that does not depend on how fast they are answered.
type load struct {
	kind string
	rate int // a second
	send func(context.Context) error

	lasted   time.Duration
	late     int // how many were not sent
	mu       sync.Mutex
	took     []time.Duration    // of those that succeeded
	failures map[string]failure // by code; "" if there was no response
}

// failure is why requests failed: how often, and what the first one said.
type failure struct {
	times int
	first error
}

// run sends requests until the time is over or the context ends. The time of each is from when it was due: a request
// that must wait until others are answered is as slow as that.
func (l *load) run(ctx context.Context, lasts time.Duration) {
	l.failures = map[string]failure{}
	begin, slots := time.Now(), make(chan struct{}, maxInFlight)
	var open sync.WaitGroup
	for i := range int(lasts.Seconds() * float64(l.rate)) {
		due := begin.Add(time.Duration(float64(i) / float64(l.rate) * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		if time.Since(due) > loadPatience {
			<-slots
			l.late++
			continue
		}
		open.Go(func() {
			err := l.send(ctx)
			<-slots
			l.note(ctx, time.Since(due), err)
		})
	}
	open.Wait()
	l.lasted = time.Since(begin)
}

// note notes how long a request took, or why it failed; nothing of those that ended with the context.
func (l *load) note(ctx context.Context, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch problem, ok := errors.AsType[*client.Error](err); {
	case err == nil:
		l.took = append(l.took, took)
	case ctx.Err() != nil:
	case ok:
		l.fail(problem.Code, err)
	default:
		l.fail("", err)
	}
}

func (l *load) fail(code string, err error) {
	f := l.failures[code]
	if f.times++; f.first == nil {
		f.first = err
	}
	l.failures[code] = f
}

// loadResult is what one kind of requests did. Times are in milliseconds, of those that succeeded.
type loadResult struct {
	Kind   string  `json:"kind"`
	Sent   int     `json:"sent"`
	Failed int     `json:"failed"`
	Rate   float64 `json:"rate"` // of those that succeeded, a second
	P50    float64 `json:"p50_ms,omitzero"`
	P90    float64 `json:"p90_ms,omitzero"`
	P99    float64 `json:"p99_ms,omitzero"`
	Max    float64 `json:"max_ms,omitzero"`
}

func (l *load) result() loadResult {
	slices.Sort(l.took)
	r := loadResult{
		Kind: l.kind, Rate: float64(len(l.took)) / l.lasted.Seconds(),
		P50: l.percentile(50), P90: l.percentile(90), P99: l.percentile(99), Max: l.percentile(100),
	}
	for _, f := range l.failures {
		r.Failed += f.times
	}
	r.Sent = len(l.took) + r.Failed
	return r
}

// percentile returns the shortest time within which p percent of the requests were answered, in milliseconds; 0 if none
// was.
func (l *load) percentile(p int) float64 {
	if len(l.took) == 0 {
		return 0
	}
	rank := (len(l.took)*p + 99) / 100
	return float64(l.took[max(rank, 1)-1].Microseconds()) / 1000
}

// cells are those of the table.
func (r loadResult) cells() []string {
	cells := []string{r.Kind, strconv.Itoa(r.Sent), strconv.Itoa(r.Failed), fmt.Sprintf("%.1f", r.Rate)}
	if r.Sent == r.Failed {
		return cells
	}
	for _, ms := range []float64{r.P50, r.P90, r.P99, r.Max} {
		cells = append(cells, fmt.Sprintf("%.1f ms", ms))
	}
	return cells
}
