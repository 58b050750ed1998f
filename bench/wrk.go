package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed wrk.lua
var wrkScript string

// wrkThreads is how many threads generate load.
const wrkThreads = 2

// The body of a lookup is lookupHead, IDs separated by lookupSeparator, and lookupTail.
const (
	lookupHead      = `{"users":["`
	lookupSeparator = `","`
	lookupTail      = `"]}`
)

// text returns the bytes of the request before and after its user or users. In head, %d is a time or a number.
func (r request) text(host string) (head, tail string) {
	head, tail, _ = strings.Cut(r.path, "{user}")
	head = strings.NewReplacer("{ms}", "%d", "{number}", "%d").Replace(r.method + " " + head)
	rest := " HTTP/1.1\r\nHost: " + host + "\r\n" + r.headers
	if r.users == 0 {
		if r.method == http.MethodPost {
			rest += "Content-Length: 0\r\n"
		}
		return head, tail + rest + "\r\n"
	}
	length := len(lookupHead) + r.users*idSize + (r.users-1)*len(lookupSeparator) + len(lookupTail)
	return head + rest + "Content-Length: " + strconv.Itoa(length) + "\r\n\r\n" + lookupHead, lookupTail
}

// script writes the script for wrk and returns the name of the file.
func (f *fixture) script(host string, conns int, r request) (string, error) {
	ids, err := f.idsFile(r.namespace)
	if err != nil {
		return "", err
	}
	head, tail := r.text(host)
	now := time.Now()
	var b bytes.Buffer
	script := template.Must(template.New("wrk.lua").Parse(wrkScript))
	if err := script.Execute(&b, map[string]any{
		"IDs": ids, "Head": strconv.Quote(head), "Tail": strconv.Quote(tail), "Users": max(1, r.users),
		"Stamped": strings.Contains(r.path, "{ms}"), "Now": now.UnixMilli(),
		"Numbered": strings.Contains(r.path, "{number}"), "Namespaces": spreadOver,
		"Seed": now.UnixNano() % 1_000_000,
	}); err != nil {
		return "", err
	}
	file := f.path(strings.NewReplacer(" ", "-", "/", "-").Replace(at(r.name, conns)) + ".lua")
	return file, os.WriteFile(file, b.Bytes(), 0o600)
}

// wrk sends a request of a workload and checks the response, and returns what measures the workload with wrk.
func (f *fixture) wrk(s *server, conns int, r request) (measureFunc, error) {
	if err := f.check(s, r); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		script, err := f.script("127.0.0.1:"+s.port, conns, r)
		if err != nil {
			return measurement{}, err
		}
		m, err := s.withCPU(func() (measurement, error) { return runWrk(ctx, conns, d, script, s.url) })
		m.units *= float64(max(1, r.users))
		if s.store == nil && r.status == http.StatusNoContent {
			_ = pause(ctx, 1500*time.Millisecond) // so that the last flush to the file does not slow the next workload
		}
		return m, err
	}, nil
}

// check sends one request of a workload with Go's client and checks the response.
func (f *fixture) check(s *server, r request) error {
	user := f.ids.id(0)
	path, body := strings.NewReplacer("{user}", user, "{ms}", "1", "{number}", "0").Replace(r.path), ""
	if r.users > 0 {
		body = lookupHead + strings.Repeat(user+lookupSeparator, r.users-1) + user + lookupTail
	}
	status, response, err := do(f.ctx, r.method, s.url+path, strings.TrimSuffix(r.headers, "\r\n"), []byte(body))
	if err != nil {
		return err
	}
	if status != r.status || !strings.Contains(string(response), r.contains) {
		return fmt.Errorf("%s %s returned %d %.200s", r.method, path, status, response)
	}
	return nil
}

// runWrk runs wrk once.
func runWrk(ctx context.Context, conns int, d time.Duration, script, url string) (measurement, error) {
	output, tool, err := runTool(ctx, d+time.Minute, "wrk", fmt.Sprintf("-t%d", wrkThreads),
		fmt.Sprintf("-c%d", conns), fmt.Sprintf("-d%d", int(d.Seconds())), "-s", script, url)
	if err != nil {
		return tool, err
	}
	m, err := parseWrk(output)
	m.command, m.load, m.loadCPUs = tool.command, tool.load, wrkThreads
	return m, err
}

// parseWrk reads what wrk.lua prints. One error, or one status of 400 or more, makes the measurement invalid.
func parseWrk(output []byte) (measurement, error) {
	var s struct {
		Requests, Us, P50, P99, Connect, Read, Write, Status, Timeout int64
	}
	_, line, found := bytes.Cut(output, []byte("bench "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if err := json.Unmarshal(line, &s); !found || err != nil {
		return measurement{}, fmt.Errorf("wrk printed %.300q", output)
	}
	m := measurement{
		units: float64(s.Requests), elapsed: time.Duration(s.Us) * time.Microsecond,
		p50: time.Duration(s.P50) * time.Microsecond, p99: time.Duration(s.P99) * time.Microsecond,
	}
	if s.Connect+s.Read+s.Write+s.Status+s.Timeout > 0 {
		const text = "of %d requests, %d returned 400 or more, %d timed out; %d socket errors"
		return m, fmt.Errorf(text, s.Requests, s.Status, s.Timeout, s.Connect+s.Read+s.Write)
	}
	if s.Requests == 0 {
		return m, errTooFew
	}
	return m, nil
}
