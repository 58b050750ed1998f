package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// measurement is what one workload did in one round.
type measurement struct {
	units   float64       // work done: requests, or users of bulk requests; 0 if value is the result
	elapsed time.Duration // in which it was done
	p50     time.Duration // latencies; 0 if not measured
	p99     time.Duration
	value   float64 // result that is not a rate: bytes, allocations
	memory  float64 // resident bytes a reader of a changes feed, or a connection
	inUse   float64 // bytes of heap and stacks a connection
	beats   float64 // heartbeats of connections, or pings
	servers float64 // that share the CPU time, where that of each is compared

	server   time.Duration // CPU time of the server
	store    time.Duration // CPU time of its Redis
	load     time.Duration // CPU time of the load generator
	loadCPUs float64       // processors that the load generator can use; 0 if it cannot be the bottleneck

	command string // that generated the load, for the report
	note    string // further observations
}

// measureFunc measures a workload for about d. A response that is not the expected one is an error.
type measureFunc func(ctx context.Context, d time.Duration) (measurement, error)

// errTooFew is the error of a measurement that measured nothing.
var errTooFew = errors.New("nothing was done in the time")

// rate returns units per second.
func (m measurement) rate() float64 {
	if m.elapsed <= 0 {
		return 0
	}
	return m.units / m.elapsed.Seconds()
}

// perUnit returns CPU time in microseconds per unit.
func (m measurement) perUnit(cpu time.Duration) float64 {
	if m.units == 0 {
		return 0
	}
	return float64(cpu.Nanoseconds()) / 1000 / m.units
}

// loadShare returns how much of the CPU time that it can use the load generator used. Near 1 it is the bottleneck.
func (m measurement) loadShare() float64 {
	if m.elapsed <= 0 || m.loadCPUs == 0 {
		return 0
	}
	return m.load.Seconds() / m.elapsed.Seconds() / m.loadCPUs
}

func (m measurement) String() string {
	if m.units == 0 {
		return format(m.value) + " " + m.note
	}
	const text = "%.0f/s, CPU per unit: server %.2f µs, store %.2f µs, load %.2f µs (%.0f %% busy), p50 %s, p99 %s"
	return fmt.Sprintf(text, m.rate(), m.perUnit(m.server), m.perUnit(m.store), m.perUnit(m.load),
		100*m.loadShare(), m.p50, m.p99)
}

// withCPU generates load on a server and adds the CPU time that the server and its store used meanwhile. If no other
// program generated the load, this process did.
func (s *server) withCPU(load func() (measurement, error)) (measurement, error) {
	server, store, err := s.cpu()
	if err != nil {
		return measurement{}, err
	}
	before := ownCPU()
	m, err := load()
	if m.load == 0 {
		m.load = ownCPU() - before
	}
	serverAfter, storeAfter, cpuErr := s.cpu()
	m.server, m.store = serverAfter-server, storeAfter-store
	return m, errors.Join(err, cpuErr, s.alive())
}

// cpu returns the CPU times of the server and of its Redis.
func (s *server) cpu() (server, store time.Duration, err error) {
	if server, err = cpuTime(s.pid()); err != nil {
		return 0, 0, err
	}
	if s.store != nil {
		store, err = cpuTime(s.store.pid())
	}
	return server, store, err
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// metric is the number of a measurement that is compared.
type metric struct {
	name string
	of   func(measurement) float64
	unit string
}

func rate() metric { return metric{"throughput", measurement.rate, "/s"} }

func medianLatency() metric {
	return metric{"median latency", func(m measurement) float64 { return millis(m.p50) }, " ms"}
}

func p99Latency() metric {
	return metric{"p99 latency", func(m measurement) float64 { return millis(m.p99) }, " ms"}
}

func value(name, unit string) metric {
	return metric{name, func(m measurement) float64 { return m.value }, unit}
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// median returns the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
