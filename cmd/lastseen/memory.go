package main

import (
	"os"
	"runtime/debug"
)

const (
	// gcBallast is the size of an allocation, in bytes, that makes the garbage collector run less often on a server
	// with a store on Redis. The collector runs when the heap has doubled; the heap of that server is so small that it
	// would run more than ten times a second under load. The ballast is never written, so it takes no memory.
	gcBallast = 32 << 20

	// filePercent is GOGC for a server with the embedded store, which holds the users in memory. With the default of
	// 100, millions of users would take as much memory again as garbage.
	filePercent = 50
)

// tuneGC sets up the garbage collector for the store, unless GOGC is set. The caller keeps the ballast alive while the
// server runs.
func tuneGC(onRedis bool) (ballast []byte) {
	switch {
	case os.Getenv("GOGC") != "":
		return nil
	case onRedis:
		return make([]byte, gcBallast)
	default:
		debug.SetGCPercent(filePercent)
		return nil
	}
}
