package main

import "fmt"

// connectionComparisons returns the comparisons about devices and connections.
func connectionComparisons() (all []comparison) {
	for _, conns := range []int{64, 256} {
		for _, store := range []string{"", onFile} {
			c := ratio(23, "ping of users without devices"+store+": this version ÷ before",
				fmt.Sprintf("versions, %d connections", conns), at("ping"+store+", "+thisVersion, conns),
				at("ping"+store+", "+beforeVersion, conns), atLeast(0.98))
			c.long = true
			all = append(all, c)
		}
	}
	resident := metric{"memory", func(m measurement) float64 { return m.memory / 1024 }, " KiB"}
	inUse := metric{"heap and stacks", func(m measurement) float64 { return m.inUse / 1024 }, " KiB"}
	core := metric{"CPU", func(m measurement) float64 { return busy(m.server, m) }, " %"}
	minute := metric{"CPU a user-minute", func(m measurement) float64 { return m.perUnit(m.server + m.store) }, " µs"}
	perBeat := func(m measurement) float64 { return float64(m.store.Microseconds()) / m.beats }
	beat := metric{"Redis' CPU", perBeat, " µs"}
	line := func(row int, work, series, subject, reference string, m metric, t target) comparison {
		return comparison{
			row: row, work: work, series: series, subject: subject, reference: reference, metric: m, target: t,
			long: true,
		}
	}
	const one, three = "18,000 connections", "45,000 connections, three servers"
	return append(all,
		line(24, one+", idle: memory of each", "connections", one, "", resident, atMost(10)),
		line(24, one+", idle: memory in use of each", "connections", one, "", inUse, target{}),
		line(24, one+", idle: CPU of heartbeats", "connections", one, "", core, atMost(6)),
		line(24, one+" ÷ pings over HTTP: CPU with Redis", "connections", one, "pings over HTTP", minute, atMost(0.2)),
		line(24, one+" ÷ centrifuge: memory of each", "connections", one, "centrifuge", resident, target{}),
		line(24, one+" ÷ centrifuge: memory in use of each", "connections", one, "centrifuge", inUse, target{}),
		line(24, one+" ÷ centrifuge: CPU with Redis", "connections", one, "centrifuge", minute, target{}),
		line(25, "heartbeat of a connection ÷ ping in bulk", "connections", one, "pings in bulk", beat, atMost(1.5)),
		line(26, three+", idle: memory of each", "three servers", three, "", resident, atMost(10)),
		line(26, three+", idle: CPU of heartbeats", "three servers", three, "", core, target{}),
		line(27, "18,000 clients reconnecting at once: time until all are welcome", "", "reconnecting", "",
			value("time", " s"), target{}),
	)
}

// connectionWorkloads returns how to set up each workload about connections.
func (f *fixture) connectionWorkloads() map[string]setup {
	return map[string]setup{
		"18,000 connections":                f.connected(1, manyConnections),
		"45,000 connections, three servers": f.connected(3, allConnections),
		"centrifuge":                        f.connectedToCentrifuge,
		"pings over HTTP":                   f.pinging,
		"pings in bulk":                     f.pingingInBulk,
		"reconnecting":                      func() (measureFunc, error) { return f.reconnect, nil },
	}
}
