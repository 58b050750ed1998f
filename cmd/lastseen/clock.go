//go:build !faults

package main

import "time"

// machineTime reads the machine's clock. The tests of faults build the program with another function, whose clock they
// can set.
func machineTime() time.Time { return time.Now() }
