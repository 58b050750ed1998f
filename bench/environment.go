package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// describe returns the machine and the versions, a line each.
func describe(ctx context.Context) []string {
	return []string{
		fmt.Sprintf("machine: %s, %d processors, %.0f GiB of memory, %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(), totalMemory()/mebibyte/1024, runtime.GOARCH),
		"kernel: " + firstLine("/proc/sys/kernel/osrelease"),
		"Go: " + runtime.Version() + ", GOMAXPROCS as it is by default, the garbage collector as lastseen sets it, for bare, too",
		"Redis: " + version(ctx, "redis-server", "--version"),
		"wrk: " + version(ctx, "wrk", "--version"),
		"webdis: " + version(ctx, "dpkg-query", "-W", "-f", "${Version}", "webdis"),
		"vegeta: v12.12.0, as a library",
	}
}

// version returns the first line that a command prints.
func version(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	output, _ := exec.CommandContext(ctx, name, args...).CombinedOutput() // wrk says its version, and fails
	line, _, _ := strings.Cut(string(output), "\n")
	line, _, _ = strings.Cut(line, " Copyright")
	if line == "" {
		return "not installed"
	}
	return strings.TrimSpace(line)
}

// totalMemory returns the machine's memory in bytes; 0 if that cannot be known.
func totalMemory() float64 {
	kilobytes, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	n, _ := strconv.ParseFloat(kilobytes, 64) // it is for the reader only
	return n * 1024
}

func firstLine(name string) string {
	content, _ := os.ReadFile(name) // without it there is nothing to say
	line, _, _ := bytes.Cut(content, []byte("\n"))
	return string(line)
}

// field returns the first value with a label in a file of /proc.
func field(name, label string) string {
	content, _ := os.ReadFile(name) // without it there is nothing to say
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == label {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
