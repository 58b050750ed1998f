package main

import (
	"context"
	"time"
)

// measurement is what one contestant did in one turn.
type measurement struct {
	units   float64       // of work done: requests, or users of bulk requests; 0 if value is all
	elapsed time.Duration // in which they were done
	p50     time.Duration // latencies; 0 if they were not taken
	p99     time.Duration
	value   float64 // of what is no rate: bytes, allocations

	server time.Duration // CPU time of the server in all
	store  time.Duration // that of the Redis behind it
	load   time.Duration // that of the program that makes the load
	share  float64       // of the CPU time that this program can take, which it took; near 1 it is the bottleneck

	command string // that made the load, for the report
	note    string // what else was seen
}

// rate is units of work a second.
func (m measurement) rate() float64 {
	if m.elapsed <= 0 {
		return 0
	}
	return m.units / m.elapsed.Seconds()
}

// each is a part of the CPU time in microseconds a unit.
func (m measurement) each(cpu time.Duration) float64 {
	if m.units == 0 {
		return 0
	}
	return float64(cpu.Nanoseconds()) / 1000 / m.units
}

// probe measures a contestant for about so long. An answer that is not what was asked for makes it an
// error.
type probe func(ctx context.Context, d time.Duration) (measurement, error)

// metric is the number of a measurement that is judged.
type metric struct {
	name string
	of   func(measurement) float64
	unit string
}

func rate() metric { return metric{"throughput", measurement.rate, "/s"} }

func medianLatency() metric {
	return metric{"median latency", func(m measurement) float64 { return float64(m.p50.Nanoseconds()) / 1e6 }, " ms"}
}

func p99Latency() metric {
	return metric{"p99 latency", func(m measurement) float64 { return float64(m.p99.Nanoseconds()) / 1e6 }, " ms"}
}

func value(name, unit string) metric {
	return metric{name, func(m measurement) float64 { return m.value }, unit}
}
