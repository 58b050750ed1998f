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
	require.Equal(t, 99, quantile(numbers(100), 0.99))
	require.Equal(t, 50, quantile(numbers(100), 0.5))
	require.Equal(t, bounds{2, 1, 3}, boundsOf([]float64{3, 1, 2}))
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestGrown: a program that takes 100 bytes at first and 110 from the middle on has grown by a tenth.
func TestGrown(t *testing.T) {
	samples := make([]float64, 100)
	for i := range samples {
		samples[i] = 100
		if i >= 50 {
			samples[i] = 110
		}
	}
	var m measurement
	require.NoError(t, grown(&m, samples))
	require.InDelta(t, 10, m.value, 1e-9)
	require.Error(t, grown(&m, nil), "the program ended before it could be looked at")
	require.Error(t, grown(&m, samples[:9]))
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
		return []byte("Running 1s test\nRequests/sec: 9\nbench {\"requests\":1000,\"us\":500000,\"p50\":10,\"p99\":20," + errors + "}\n")
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

func TestTally(t *testing.T) {
	begin := time.Unix(1000, 0)
	sent := func(every time.Duration) *tally {
		var all tally
		for i := range 101 {
			all.add(&vegeta.Result{Code: 204, Timestamp: begin.Add(time.Duration(i) * every), Latency: 5 * time.Second})
		}
		return &all
	}
	require.NoError(t, sent(10*time.Millisecond).err(100), "late answers are no reason")
	require.Error(t, sent(12*time.Millisecond).err(100))
	require.Error(t, (&tally{}).err(100))
	failed := sent(10 * time.Millisecond)
	failed.add(&vegeta.Result{Code: 503, Timestamp: begin})
	require.ErrorContains(t, failed.err(100), "1 of 102 requests failed, as in 503")
}

func TestBetween(t *testing.T) {
	content := []byte("prose\n" + beginMarker + "\nold\n" + endMarker + "\nmore prose\n")
	once, err := between(content, []byte("new\n"))
	require.NoError(t, err)
	require.Equal(t, "prose\n"+beginMarker+"\n\nnew\n"+endMarker+"\nmore prose\n", string(once))
	twice, err := between(once, []byte("new\n"))
	require.NoError(t, err)
	require.Equal(t, once, twice)
	_, err = between([]byte("prose"), nil)
	require.Error(t, err)
}

// turnsOf returns a contestant with these rates, at 10 µs of CPU time a unit.
func turnsOf(name string, rates ...float64) *contestant {
	c := &contestant{name: name}
	for _, rate := range rates {
		c.turns = append(c.turns, measurement{
			units: rate, elapsed: time.Second, server: time.Duration(rate) * 10 * time.Microsecond, p99: time.Millisecond,
		})
	}
	return c
}

func TestVerdicts(t *testing.T) {
	r := result{
		experiment: experiment{metric: rate(), target: atLeast(0.5)},
		subject:    turnsOf("ours", 50, 60, 30), reference: turnsOf("theirs", 100, 100, 100),
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
	alone := result{experiment: experiment{metric: value("RSS", " MiB"), target: atMost(40)}, subject: &contestant{turns: []measurement{{value: 39}}}}
	require.Equal(t, "met", alone.verdict())
}

func TestCommandLine(t *testing.T) {
	require.Equal(t, "redis-benchmark -p PORT -x '' 'a b'", commandLine([]string{"redis-benchmark", "-p", "40123", "-x", "", "a b"}))
	require.Equal(t, "wrk -s ping.lua http://127.0.0.1:PORT", commandLine([]string{"wrk", "-s", "/any/lastseen-bench-123/ping.lua", "http://127.0.0.1:4000"}))
	require.Equal(t, "redis-server --dir DIR", commandLine([]string{"redis-server", "--dir", "/any/lastseen-bench-123"}))
}

func TestShown(t *testing.T) {
	for x, want := range map[float64]string{0: "–", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1234: "1234", 12345: "12.3 k", 123456: "123 k"} {
		require.Equal(t, want, shown(x))
	}
}
