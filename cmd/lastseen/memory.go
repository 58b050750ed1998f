package main

import (
	"os"
	"runtime/debug"
)

const (
	// heapFloor is what the collector takes for used beyond what is, with a store on Redis, in bytes. It runs
	// when the heap has doubled, and a server that holds no users has so little of it that this would be more
	// than ten times a second under load. Nobody writes there, so it is an address range and no memory.
	heapFloor = 32 << 20

	// filePercent is how much garbage there may be, in percent of what is used, when the users are in this
	// process. With the standard 100, millions of users would take as much memory once again.
	filePercent = 50
)

// tuneCollector suits the garbage collector to the store, unless GOGC says how it is to run. The caller keeps
// what it returns for as long as the service runs.
func tuneCollector(onRedis bool) (floor []byte) {
	switch {
	case os.Getenv("GOGC") != "":
		return nil
	case onRedis:
		return make([]byte, heapFloor)
	default:
		debug.SetGCPercent(filePercent)
		return nil
	}
}
