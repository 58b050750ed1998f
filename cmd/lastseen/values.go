package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/access"
)

// value is a setting that reads a text by rules of its own.
type value interface {
	set(text string) error
	takes() string // for people: what it accepts
}

// address is a setting that is a TCP address to listen on.
type address string

func (a *address) set(text string) error {
	*a = address(text)
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is no address", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return fmt.Errorf("%q has no valid port", text)
	}
	return nil
}

func (*address) takes() string { return "HOST:PORT, or :PORT for all addresses" }

// private reports whether only this machine can reach the address.
func (a address) private() bool {
	host, _, _ := net.SplitHostPort(string(a))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// duration is a setting that is a duration.
type duration time.Duration

// retention is a setting that is a duration, or "off", which is zero.
type retention time.Duration

func (r *retention) set(text string) error {
	if text == off {
		*r = 0
		return nil
	}
	parsed, err := lastseen.ParseConfigDuration(text)
	*r = retention(parsed)
	return err
}

func (*retention) takes() string { return "off, or a duration" }

// off is the text of what is not wanted.
const off = "off"

// logLevel is a setting that is a level of the log.
type logLevel slog.Level

func (l *logLevel) set(text string) error {
	if !slices.Contains(logLevels(), text) {
		return fmt.Errorf("%q is no level", text)
	}
	return (*slog.Level)(l).UnmarshalText([]byte(text))
}

func (*logLevel) takes() string { return strings.Join(logLevels(), ", ") }

func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// authMode is a setting that says whether callers have to prove who they are.
type authMode string

// The modes.
const (
	authAuto authMode = "auto" // if keys or JWTs are configured
	authNone authMode = "none" // they need not
)

func (m *authMode) set(text string) error {
	*m = authMode(text)
	if *m != authAuto && *m != authNone {
		return fmt.Errorf("%q is neither", text)
	}
	return nil
}

func (*authMode) takes() string { return "auto or none" }

// patterns is a setting that matches names of namespaces.
type patterns []access.Pattern

func (p *patterns) set(text string) error {
	return each(text, (*[]access.Pattern)(p), access.ParsePattern)
}

func (*patterns) takes() string {
	return "namespaces with commas between; chat-* is all that begin with chat-, and * is all"
}

// each reads the items of a list with commas between.
func each[T any](text string, into *[]T, parse func(string) (T, error)) error {
	*into = nil
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return errors.New("has an empty item")
		}
		parsed, err := parse(item)
		if err != nil {
			return err
		}
		*into = append(*into, parsed)
	}
	return nil
}

// keySetURL is a setting that is the URL of a key set.
type keySetURL string

func (u *keySetURL) set(text string) error {
	*u = keySetURL(text)
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http":
		return errors.New("is no URL of the web") // and not shown: it may hold a password
	case parsed.User != nil:
		return errors.New("has a user or a password, and a key set is public")
	}
	return nil
}

func (*keySetURL) takes() string { return "a URL, as in https://id.example.com/jwks.json" }

// rate is a setting that is a number of requests a second, or "off", which is zero.
type rate int

// maxRate bounds a rate: more than any server answers.
const maxRate = 1_000_000

func (r *rate) set(text string) error {
	if text == off {
		*r = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxRate {
		return fmt.Errorf("%q is no such number", text)
	}
	*r = rate(n)
	return nil
}

func (*rate) takes() string { return fmt.Sprintf("off, or a number from 1 to %d", maxRate) }

// networks is a setting that is a set of IP addresses.
type networks []netip.Prefix

func (n *networks) set(text string) error {
	return each(text, (*[]netip.Prefix)(n), func(item string) (netip.Prefix, error) {
		if address, err := netip.ParseAddr(item); err == nil && address.Zone() == "" {
			return netip.PrefixFrom(address, address.BitLen()), nil
		}
		network, err := netip.ParsePrefix(item)
		switch {
		case err != nil:
			return network, fmt.Errorf("%q is no address and no network", item)
		case network != network.Masked():
			return network, fmt.Errorf("%q is an address within %s: which of them is meant?", item, network.Masked())
		}
		return network, nil
	})
}

func (*networks) takes() string {
	return "addresses and networks with commas between, as in 10.0.0.0/8"
}

// origins is a setting that is a list of origins of web pages, or * for any.
type origins []string

func (o *origins) set(text string) error {
	return each(text, (*[]string)(o), func(item string) (string, error) { return item, api.CheckOrigin(item) })
}

func (*origins) takes() string {
	return "origins with commas between, as in https://app.example.com, or * for any"
}
