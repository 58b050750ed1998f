package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serial sends the same GET again and again on one connection, to measure latency without a queue.
func serial(s *server, path string) measureFunc {
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		return s.withCPU(func() (measurement, error) {
			var latencies []time.Duration
			before, begun := ownCPU(), time.Now()
			for time.Since(begun) < d {
				sent := time.Now()
				if _, err := get(ctx, client, s.url+path); err != nil {
					return measurement{}, err
				}
				latencies = append(latencies, time.Since(sent))
			}
			m := measurement{
				units: float64(len(latencies)), elapsed: time.Since(begun), load: ownCPU() - before,
				p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
				command: "one connection, one request after the other: GET " + withoutCursor(path),
			}
			m.loadShare = m.load.Seconds() / m.elapsed.Seconds()
			return m, nil
		})
	}
}

// withoutCursor replaces the cursor at the end of a path, which is long and differs from run to run.
func withoutCursor(path string) string {
	before, _, found := strings.Cut(path, "&cursor=")
	if !found {
		return path
	}
	return before + "&cursor=CURSOR"
}

// get returns the body of a 200 response. Any other status is an error.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	status, body, err := do(client, request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %.200s", withoutCursor(url), status, body)
	}
	return body, err
}

// pageSize is the default of the API.
const pageSize = 50

// page returns the path of the page with a number, counted from 1. It follows the cursors to it.
func (f *fixture) page(s *server, namespace string, number int) (string, error) {
	first := fmt.Sprintf("/v1/namespaces/%s/users?limit=%d", namespace, pageSize)
	path := first
	for n := 1; n <= number; n++ {
		body, err := get(f.ctx, http.DefaultClient, s.url+path)
		if err != nil {
			return "", err
		}
		var page struct {
			Users      []json.RawMessage `json:"users"`
			NextCursor string            `json:"next_cursor"`
		}
		if err := json.Unmarshal(body, &page); err != nil || len(page.Users) != pageSize {
			return "", fmt.Errorf("page %d of %s has %d users", n, namespace, len(page.Users))
		}
		if n < number {
			path = first + "&cursor=" + url.QueryEscape(page.NextCursor)
		}
	}
	return path, nil
}

// deepPage is the number of the page that is compared with the first one.
func (f *fixture) deepPage() int { return min(10_000, f.users/pageSize/2) }
