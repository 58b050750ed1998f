package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time of a process, user and system, since its start.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(content))
}

// parseStat reads the 14th and the 15th field. It counts from the end of the name, which can contain anything.
func parseStat(line string) (time.Duration, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/…/stat has %d fields", len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// memory returns a field of /proc/…/status in bytes: VmRSS, RssAnon, VmHWM.
func memory(pid int, field string) (float64, error) {
	n, err := procNumber(pid, "status", field+":")
	return n * 1024, err
}

// writtenBy returns how many bytes a process has written. calls is what it passed to the kernel, for files and for the
// little that went to sockets. disk counts pages that changed, with all that the kernel keeps together with them.
func writtenBy(pid int) (calls, disk float64, err error) {
	calls, err = procNumber(pid, "io", "wchar:")
	disk, diskErr := procNumber(pid, "io", "\nwrite_bytes:")
	return calls, disk, errors.Join(err, diskErr)
}

// procNumber returns the number after a label in a file of a process in /proc.
func procNumber(pid int, file, label string) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	return numberAfter(content, label)
}

// numberAfter returns the number after a label.
func numberAfter(content []byte, label string) (float64, error) {
	_, rest, ok := bytes.Cut(content, []byte(label))
	fields := bytes.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, fmt.Errorf("%q not found", strings.TrimSpace(label))
	}
	return strconv.ParseFloat(string(fields[0]), 64)
}
