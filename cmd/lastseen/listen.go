package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// listen opens the port in the settings. The error names the setting.
func listen(c *config.Config) (net.Listener, error) {
	listener, err := net.Listen("tcp", c.Listen)
	if err == nil {
		return listener, nil
	}
	var call *os.SyscallError // without the address again, and the name of the system call
	if errors.As(err, &call) {
		err = call.Err
	}
	advice := "choose another address with --listen or " + config.EnvPrefix + "LISTEN"
	if errors.Is(err, syscall.EADDRINUSE) {
		advice = "stop the process that uses it, or " + advice
	}
	return nil, fmt.Errorf("cannot listen on %s (%s): %w; %s", c.Listen, c.Source("listen"), err, advice)
}

// banner returns what a server prints when it is ready: where the API is, where the data is (without passwords), and
// who can call. Its URLs can be opened on this machine.
func banner(listen net.Addr, tls bool, store, callers string) string {
	host, port, _ := net.SplitHostPort(listen.String())
	ip := net.ParseIP(host)
	everywhere := ip != nil && ip.IsUnspecified()
	if everywhere {
		host = "localhost"
	}
	scheme := "http"
	if tls {
		scheme = "https"
	}
	server := scheme + "://" + net.JoinHostPort(host, port)
	var text strings.Builder
	fmt.Fprintf(&text, "lastseen %s\n  API   %s/v1/namespaces\n  docs  %s/docs/\n  data  %s\n  for   %s\n",
		version().Version, server, server, store, callers)
	if everywhere {
		fmt.Fprintf(&text,
			"  note  listening on port %s of all addresses; from outside a container, use the published port\n", port)
	}
	return text.String()
}
