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

// listen opens the port of an address, which a setting has.
func listen(c *config.Config, setting, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok { // without the address again, and the name of the call
		err = call.Err
	}
	definition, _ := config.Find(setting)
	advice := "choose another address with --" + setting + " or " + definition.Env()
	if errors.Is(err, syscall.EADDRINUSE) {
		advice = "stop the process that uses it, or " + advice
	}
	return nil, fmt.Errorf("cannot listen on %s (%s): %w; %s", address, c.Source(setting), err, advice)
}

// banner is what a server prints when it is ready.
type banner struct {
	listen  net.Addr
	tls     bool
	admin   net.Listener // nil if it is off
	store   string       // where the data is, without passwords
	callers string       // who can call
}

// String returns the text. Its URLs can be opened on this machine.
func (b banner) String() string {
	scheme := "http"
	if b.tls {
		scheme = "https"
	}
	server, everywhere := localURL(scheme, b.listen)
	var text strings.Builder
	fmt.Fprintf(&text, "lastseen %s\n  web   %s/\n  API   %[2]s/v1/namespaces\n  docs  %[2]s/docs/\n"+
		"  guide %[2]s/guides/\n", version().Version, server)
	if b.admin != nil {
		operators, _ := localURL("http", b.admin.Addr())
		fmt.Fprintf(&text, "  admin %s\n", operators)
	}
	fmt.Fprintf(&text, "  data  %s\n  for   %s\n", b.store, b.callers)
	if everywhere {
		_, port, _ := net.SplitHostPort(b.listen.String())
		fmt.Fprintf(&text,
			"  note  listening on port %s of all addresses; from outside a container, use the published port\n", port)
	}
	return text.String()
}

// localURL returns the URL of a listening address on this machine, and whether it is on all addresses.
func localURL(scheme string, address net.Addr) (url string, everywhere bool) {
	host, port, _ := net.SplitHostPort(address.String())
	ip := net.ParseIP(host)
	everywhere = ip != nil && ip.IsUnspecified()
	if everywhere {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port), everywhere
}
