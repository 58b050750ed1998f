package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// serial sends the same GET again and again on one connection, to measure latency without a queue.
func serial(s *server, path string) measureFunc {
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return s.withCPU(func() (measurement, error) {
			var latencies []time.Duration
			begun := time.Now()
			for time.Since(begun) < d {
				sent := time.Now()
				if _, err := get(ctx, s.url+path); err != nil {
					return measurement{}, err
				}
				latencies = append(latencies, time.Since(sent))
			}
			elapsed, n := time.Since(begun), len(latencies)
			slices.Sort(latencies)
			return measurement{
				units: float64(n), elapsed: elapsed, loadCPUs: 1, p50: latencies[n/2], p99: latencies[n*99/100],
				command: "one connection, one request after the other: GET " + withoutCursor(path),
			}, nil
		})
	}
}

// withoutCursor replaces the cursor at the end of a path, which is long and differs from run to run.
func withoutCursor(path string) string {
	return regexp.MustCompile("&cursor=.*").ReplaceAllString(path, "&cursor=CURSOR")
}

// get returns the body of a 200 response. Any other status is an error.
func get(ctx context.Context, url string) ([]byte, error) {
	status, body, err := do(ctx, http.MethodGet, url, "", nil)
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
		body, err := get(f.ctx, s.url+path)
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
