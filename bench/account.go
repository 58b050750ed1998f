package main

import (
	"errors"
	"regexp"
	"strings"
	"time"
)

// account runs a load on a server and adds the CPU time that the server and its store took meanwhile.
func (s *server) account(load func() (measurement, error)) (measurement, error) {
	server, store, err := s.cpu()
	if err != nil {
		return measurement{}, err
	}
	m, err := load()
	serverAfter, storeAfter, cpuErr := s.cpu()
	m.server, m.store = serverAfter-server, storeAfter-store
	return m, errors.Join(err, cpuErr, s.alive())
}

// cpu returns the CPU times of the server and of the Redis behind it.
func (s *server) cpu() (server, store time.Duration, err error) {
	if server, err = cpuTime(s.pid()); err != nil {
		return 0, 0, err
	}
	if s.store != nil {
		store, err = cpuTime(s.store.pid())
	}
	return server, store, err
}

// commandLine writes a command as one would type it, without the folders and ports of this run.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		arg = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+$`).ReplaceAllString(arg, "DIR")
		arg = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+/`).ReplaceAllString(arg, "")
		arg = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).ReplaceAllString(arg, "127.0.0.1:PORT")
		if i > 0 && (args[i-1] == "-p" || args[i-1] == "--port") {
			arg = "PORT"
		}
		if arg == "" || strings.ContainsAny(arg, " '\"") {
			arg = "'" + arg + "'"
		}
		quoted[i] = arg
	}
	return strings.Join(quoted, " ")
}
