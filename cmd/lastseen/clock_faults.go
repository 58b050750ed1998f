//go:build faults

package main

import (
	"encoding/binary"
	"os"
	"time"
)

// clockOffsetVar is the environment variable with the path of a file. Its 8 bytes, little-endian, are the seconds by
// which the machine's clock seems to be off; see package faults.
const clockOffsetVar = "FAULTS_CLOCK_OFFSET"

// machineTime reads a clock that a test can set while the program runs. As with a real clock that is set, monotonic
// time goes on unchanged.
func machineTime() time.Time {
	now := time.Now()
	offset, err := os.ReadFile(os.Getenv(clockOffsetVar))
	if err != nil || len(offset) != 8 {
		return now
	}
	return now.Add(time.Duration(int64(binary.LittleEndian.Uint64(offset))) * time.Second)
}
