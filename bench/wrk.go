package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

//go:embed wrk.lua
var wrkSource string

// requestOf is how requests of one kind look: Method, path before and after the user, headers.
type requestOf struct {
	method        string
	before, after string // of the path, or of the list of users in the body
	headers       string // each with CRLF
	body          string // before the list of users, if there are several
	each          int    // users of a request; 0 for one, in the path
	stamped       bool   // with a time in the path, before the user
	spread        string // between the number of the namespace, which follows before, and the user; "" for one namespace
}

// text returns the request before and after its user or users.
func (r requestOf) text(host string) (head, tail string) {
	rest := " HTTP/1.1\r\nHost: " + host + "\r\n" + r.headers
	if r.each == 0 {
		if r.method == http.MethodPost {
			rest += "Content-Length: 0\r\n"
		}
		return r.method + " " + r.before, r.after + rest + "\r\n"
	}
	const end = `"]}`
	length := len(r.body) + r.each*idSize + (r.each-1)*len(`","`) + len(end)
	return r.method + " " + r.before + rest + "Content-Length: " + strconv.Itoa(length) + "\r\n\r\n" + r.body, end
}

// script writes the script for wrk and returns its name.
func (l *lab) script(name, host, namespace string, r requestOf) (string, error) {
	script, err := template.New("wrk.lua").Parse(wrkSource)
	if err != nil {
		return "", err
	}
	head, tail := r.text(host)
	ids, err := l.idsFile(namespace)
	if err != nil {
		return "", err
	}
	from, over := int64(0), 0
	if r.spread != "" {
		over = spreadOver
	}
	if r.stamped {
		from = time.Now().UnixMilli()
	}
	var b bytes.Buffer
	if err := script.Execute(&b, map[string]any{
		"IDs": ids, "Head": strconv.Quote(head), "Tail": strconv.Quote(tail),
		"Spread": over, "Middle": strconv.Quote(r.spread),
		"Each": max(1, r.each), "From": from, "Seed": time.Now().UnixNano() % 1_000_000,
	}); err != nil {
		return "", err
	}
	file := l.path(strings.NewReplacer(" ", "-", "/", "-").Replace(name) + ".lua")
	return file, os.WriteFile(file, b.Bytes(), 0o600)
}

// wrk returns the probe that has wrk send requests of a kind to a server, after one of them was answered
// with the status and with a body that contains the text.
func (l *lab) wrk(name string, s *server, conns int, r request) (probe, error) {
	if err := l.check(s, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	host := strings.TrimPrefix(s.url, "http://")
	units := float64(max(1, r.each))
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		script, err := l.script(name, host, r.namespace, r.requestOf)
		if err != nil {
			return measurement{}, err
		}
		return s.account(func() (measurement, error) {
			m, err := runWrk(ctx, l.threads, conns, d, script, s.url)
			m.units *= units
			return m, err
		})
	}, nil
}

// check sends one request of a kind, by another client than wrk, and looks at the answer.
func (l *lab) check(s *server, r request) error {
	path, body := r.before+l.ids.id(0)+r.after, ""
	switch {
	case r.spread != "":
		path = r.before + "0" + r.spread + l.ids.id(0) + r.after
	case r.each > 0:
		path, body = r.before, r.body+strings.Repeat(l.ids.id(0)+`","`, r.each-1)+l.ids.id(0)+`"]}`
	case r.stamped:
		path = r.before + "1/" + l.ids.id(0) + r.after
	}
	request, err := http.NewRequestWithContext(l.ctx, r.method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(r.headers, "\r\n"), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != r.status || !strings.Contains(string(answer), r.contains) {
		return fmt.Errorf("%s %s answered %s %.200s", r.method, path, response.Status, answer)
	}
	return nil
}

// runWrk runs wrk once.
func runWrk(ctx context.Context, threads, conns int, d time.Duration, script, url string) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	args := []string{fmt.Sprintf("-t%d", threads), fmt.Sprintf("-c%d", conns), fmt.Sprintf("-d%d", int(d.Seconds())), "-s", script, url}
	cmd := exec.CommandContext(ctx, "wrk", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("wrk: %w: %.300s", err, output)
	}
	m, err := parseWrk(output)
	m.command = commandLine(append([]string{"wrk"}, args...))
	m.load = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	m.share = m.load.Seconds() / (m.elapsed.Seconds() * float64(threads))
	return m, err
}

// parseWrk reads what wrk.lua prints. One error, or one answer that says no, spoils the measurement.
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
		return m, fmt.Errorf("of %d requests: %d answered 400 or more, %d timeouts, errors on sockets: %d connecting, %d reading, %d writing",
			s.Requests, s.Status, s.Timeout, s.Connect, s.Read, s.Write)
	}
	if s.Requests == 0 {
		return m, errTooFew
	}
	return m, nil
}
