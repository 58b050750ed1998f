package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// environment returns the machine and the versions, one per line.
func environment(ctx context.Context) []string {
	kilobytes, _ := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64)
	return []string{
		fmt.Sprintf("machine: %s, %d processors, %.0f GiB of memory, %s",
			field("/proc/cpuinfo", "model name"), runtime.NumCPU(), kilobytes/1024/1024, runtime.GOARCH),
		"kernel: " + version(ctx, "uname", "-r"),
		"Go: " + runtime.Version() + ", default GOMAXPROCS, the garbage collector as lastseen sets it, also for bare",
		"Redis: " + version(ctx, "redis-server", "--version"),
		"wrk: " + version(ctx, "wrk", "--version"),
		"webdis: " + version(ctx, "dpkg-query", "-W", "-f", "${Version}", "webdis"),
		"vegeta: v12.12.0, as a library",
		"centrifuge: v0.38.0, presence on, memory engine",
	}
}

// version returns the first line that a command prints.
func version(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	output, _ := exec.CommandContext(ctx, name, args...).CombinedOutput() // wrk prints its version and fails
	line, _, _ := strings.Cut(string(output), "\n")
	line, _, _ = strings.Cut(line, " Copyright")
	if line == "" {
		return "not installed"
	}
	return strings.TrimSpace(line)
}

// field returns the first value with a label in a file of /proc.
func field(name, label string) string {
	content, _ := os.ReadFile(name) // for the reader only
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == label {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
