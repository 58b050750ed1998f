package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func TestMedians(t *testing.T) {
	require.Zero(t, median(nil))
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	middle, spread := summary([]float64{3, 1, 2})
	require.Equal(t, []string{"2.00", "1.00 – 3.00"}, []string{middle, spread})
}

func TestInTurn(t *testing.T) {
	a, b, c := &workload{name: "a"}, &workload{name: "b"}, &workload{name: "c"}
	all := []*workload{a, b, c}
	require.Equal(t, all, inTurn(all, 0))
	require.Equal(t, []*workload{c, b, a}, inTurn(all, 1))
	require.Equal(t, []*workload{a, b, c}, inTurn(all, 2), "all is as it was")
}

// TestMemoryGrowth has 100 bytes at first and 110 from the middle on: a growth of a tenth.
func TestMemoryGrowth(t *testing.T) {
	samples := make([]float64, 100)
	for i := range samples {
		samples[i] = 100
		if i >= 50 {
			samples[i] = 110
		}
	}
	var m measurement
	require.NoError(t, memoryGrowth(&m, samples))
	require.InDelta(t, 10, m.value, 1e-9)
	require.Error(t, memoryGrowth(&m, nil), "the program ended before the first sample")
	require.Error(t, memoryGrowth(&m, samples[:9]))
}

func TestParsers(t *testing.T) {
	cpu, err := parseStat("42 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, cpu)
	_, err = parseStat("42 (a) S 1")
	require.Error(t, err)

	n, err := numberAfter([]byte("rchar: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n"), "\nwrite_bytes:")
	require.NoError(t, err)
	require.InDelta(t, 4096, n, 0)
	_, err = numberAfter([]byte("VmRSS:"), "VmRSS:")
	require.Error(t, err)

	perSecond, err := parseRedisBenchmark("\"test\",\"rps\",\"avg\"\n\"ZADD k GT 1 a\",\"1250.50\",\"0.2\"\n")
	require.NoError(t, err)
	require.InDelta(t, 1250.5, perSecond, 0)
	for _, wrong := range []string{"", "Could not connect", "\"test\",\"rps\"\n\"ZADD\",\"0\""} {
		_, err := parseRedisBenchmark(wrong)
		require.Error(t, err, wrong)
	}
}

func TestParseWrk(t *testing.T) {
	line := func(errors string) []byte {
		const before = "Running 1s test\nRequests/sec: 9\n" + `bench {"requests":1000,"us":500000,"p50":10,"p99":20,`
		return []byte(before + errors + "}\n")
	}
	m, err := parseWrk(line(`"connect":0,"read":0,"write":0,"status":0,"timeout":0`))
	require.NoError(t, err)
	require.InDelta(t, 2000, m.rate(), 0)
	require.Equal(t, 20*time.Microsecond, m.p99)
	for _, one := range []string{"connect", "read", "write", "status", "timeout"} {
		_, err := parseWrk(line(`"` + one + `":1`))
		require.Error(t, err, one)
	}
	_, err = parseWrk([]byte("unable to connect"))
	require.Error(t, err)
}

func TestOpenLoopErr(t *testing.T) {
	begin := time.Unix(1000, 0)
	send := func(every time.Duration, more ...*vegeta.Result) error {
		var seen vegeta.Metrics
		for i := range 101 {
			at := begin.Add(time.Duration(i) * every)
			seen.Add(&vegeta.Result{Code: 204, Timestamp: at, Latency: 5 * time.Second})
		}
		for _, r := range more {
			seen.Add(r)
		}
		seen.Close()
		return openLoopErr(&seen, 100)
	}
	require.NoError(t, send(10*time.Millisecond), "late responses are valid")
	require.Error(t, send(12*time.Millisecond))
	require.Error(t, openLoopErr(&vegeta.Metrics{}, 100))
	failed := &vegeta.Result{Code: 503, Timestamp: begin, Error: "503 Service Unavailable"}
	require.ErrorContains(t, send(10*time.Millisecond, failed), "503 Service Unavailable")
	require.ErrorContains(t, send(10*time.Millisecond, failed), "of 102 requests")
}

// roundsOf returns a workload with these rates, at 10 µs of CPU time per unit.
func roundsOf(name string, rates ...float64) *workload {
	w := &workload{name: name}
	for _, rate := range rates {
		w.rounds = append(w.rounds, measurement{
			units: rate, elapsed: time.Second, p99: time.Millisecond,
			server: time.Duration(rate) * 10 * time.Microsecond,
		})
	}
	return w
}

func TestVerdicts(t *testing.T) {
	r := result{
		comparison: comparison{metric: rate(), target: atLeast(0.5)},
		subject:    roundsOf("ours", 50, 60, 30), reference: roundsOf("theirs", 100, 100, 100),
	}
	require.Equal(t, []float64{0.5, 0.6, 0.3}, r.ratios(), "round by round")
	require.Equal(t, "met?", r.verdict(), "not in every round")
	r.target = atLeast(0.3)
	require.Equal(t, "met", r.verdict())
	require.InDelta(t, 1, median(r.costs()), 1e-9)
	r.target = atLeast(0.51)
	require.Equal(t, "missed?", r.verdict())
	r.target = atLeast(0.7)
	require.Equal(t, "missed", r.verdict())
	r.target = atMost(0.6)
	require.Equal(t, "met", r.verdict())
	r.target = target{}
	require.Equal(t, "–", r.verdict())
	r.metric, r.target = p99Latency(), target{most: 0.5, orBelow: 5}
	require.Equal(t, "met", r.verdict(), "fast enough by itself")
	r.target.orBelow = 0.5
	require.Equal(t, "missed", r.verdict())
	r.reference.err = errors.New("out of order")
	require.Equal(t, "invalid", r.verdict())
	require.ErrorContains(t, results{r}.err(), "theirs: out of order")
	require.Contains(t, report{results: results{r}}.notes()[0], "INVALID: theirs: out of order")
	alone := result{
		comparison: comparison{row: 16, work: "idle", metric: value("RSS", " MiB"), target: atMost(40)},
		subject:    &workload{name: "idle", rounds: []measurement{{value: 39, command: "lastseen"}}},
	}
	require.Equal(t, "met", alone.verdict())
	page := string(report{results: results{alone}}.markdown())
	require.Regexp(t, `\| 16 +\| idle +\| RSS +\| 39.0 MiB +\| 39.0 – 39.0 +\| +\| ≤ 40 +\| met +\|`, page)
	require.Contains(t, page, "- idle: `lastseen`")
}

func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"redis-benchmark -p PORT -x '' 'a b'": {"redis-benchmark", "-p", "40123", "-x", "", "a b"},
		"wrk -s p.lua http://127.0.0.1:PORT":  {"wrk", "-s", "/x/lastseen-bench-1/p.lua", "http://127.0.0.1:4000"},
		"redis-server --dir DIR":              {"redis-server", "--dir", "/any/lastseen-bench-123"},
	} {
		require.Equal(t, want, commandLine(args))
	}
}

func TestFormat(t *testing.T) {
	for x, want := range map[float64]string{
		0: "–", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1234: "1234", 12345: "12.3 k", 123456: "123 k",
	} {
		require.Equal(t, want, format(x))
	}
}
