package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it has no way to fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serial returns the probe that sends the same GET over and over on one connection, for latencies
// without a queue.
func (l *lab) serial(s *server, path string) probe {
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		return s.account(func() (measurement, error) {
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
				p50: medianTime(latencies), p99: quantile(latencies, 0.99),
				command: "one connection, one request after the other: GET " + shorten(path),
			}
			m.share = m.load.Seconds() / m.elapsed.Seconds()
			return m, nil
		})
	}
}

// shorten leaves the cursor out, which is long and means nothing to a reader.
func shorten(path string) string {
	u, err := url.Parse(path)
	if err != nil || !u.Query().Has("cursor") {
		return path
	}
	q := u.Query()
	q.Set("cursor", "CURSOR")
	u.RawQuery = q.Encode()
	return u.String()
}

// get reads an answer to its end. It has to be 200.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s %.200s", shorten(url), response.Status, body)
	}
	return body, err
}

// pageSize is that of the lists which are measured: the default.
const pageSize = 50

// page returns the path of a page of a namespace, found by walking there, so many pages from the first.
func (l *lab) page(s *server, namespace string, number int) (string, error) {
	first := fmt.Sprintf("/v1/namespaces/%s/users?limit=%d", namespace, pageSize)
	path := first
	for n := 1; n <= number; n++ {
		body, err := get(l.ctx, http.DefaultClient, s.url+path)
		if err != nil {
			return "", err
		}
		var answer struct {
			Users      []json.RawMessage `json:"users"`
			NextCursor string            `json:"next_cursor"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Users) != pageSize {
			return "", fmt.Errorf("page %d of %s has %d users", n, namespace, len(answer.Users))
		}
		if n < number {
			path = first + "&cursor=" + url.QueryEscape(answer.NextCursor)
		}
	}
	return path, nil
}

// deepPage is the number of the page that the first one is compared with; less if there are fewer users.
func (l *lab) deepPage() int { return min(10_000, l.users/pageSize/2) }
