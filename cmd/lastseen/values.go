package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
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
		return fmt.Errorf("%q is not an address", text)
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
	return isPrivate(host)
}

// isPrivate reports whether a host is this machine, for this machine alone.
func isPrivate(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// redisScheme matches the beginning of a URL of Redis, also of one that goes on wrongly: redis:/host.
var redisScheme = regexp.MustCompile(`(?i)^rediss?(\+[a-z]*)?:`)

// isStoreURL reports whether the text of a store is meant as a URL, and not as the name of a file.
func isStoreURL(text string) bool {
	return strings.Contains(text, "://") || redisScheme.MatchString(text)
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
		return fmt.Errorf("%q is not a log level", text)
	}
	return (*slog.Level)(l).UnmarshalText([]byte(text))
}

func (*logLevel) takes() string { return "debug, info, warn or error" }

func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// logFormat is a setting that is a format of the log.
type logFormat string

// The formats.
const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

func (f *logFormat) set(text string) error {
	*f = logFormat(text)
	if *f != logText && *f != logJSON {
		return fmt.Errorf("%q is not a format", text)
	}
	return nil
}

func (*logFormat) takes() string { return "text or json" }

// newLogger returns a logger that writes lines in the format.
func (f logFormat) newLogger(w io.Writer, level *slog.LevelVar) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if f == logJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// toggle is a setting that is on or off.
type toggle string

const on toggle = "on"

func (t *toggle) set(text string) error {
	*t = toggle(text)
	if *t != on && *t != off {
		return fmt.Errorf("%q is not valid", text)
	}
	return nil
}

func (*toggle) takes() string { return "on or off" }

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
		return fmt.Errorf("%q is not valid", text)
	}
	return nil
}

func (*authMode) takes() string { return "auto or none" }

// unknownNamespaces is a setting that says what happens to namespaces that are not configured.
type unknownNamespaces string

// The policies.
const (
	allowUnknown  unknownNamespaces = "allow"
	refuseUnknown unknownNamespaces = "refuse"
)

func (u *unknownNamespaces) set(text string) error {
	*u = unknownNamespaces(text)
	if *u != allowUnknown && *u != refuseUnknown {
		return fmt.Errorf("%q is not valid", text)
	}
	return nil
}

func (*unknownNamespaces) takes() string { return "allow or refuse" }

// patterns is a setting that matches names of namespaces.
type patterns []auth.Pattern

func (p *patterns) set(text string) error {
	return each(text, (*[]auth.Pattern)(p), auth.ParsePattern)
}

func (*patterns) takes() string {
	return "comma-separated namespaces (chat-* matches names that start with chat-, * matches all)"
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
		return errors.New("is not an http or https URL") // and not shown: it may hold a password
	case parsed.User != nil:
		return errors.New("has a user name or a password: a key set is public and needs neither")
	}
	return nil
}

// redacted returns the URL without what may be a secret: a user, a password, and the query.
func (u keySetURL) redacted() string {
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Opaque != "" || parsed.Host == "" {
		return "(unreadable)"
	}
	if parsed.User != nil {
		parsed.User = url.User(redactedPart)
	}
	if parsed.RawQuery != "" {
		parsed.RawQuery = redactedPart
	}
	parsed.Fragment, parsed.RawFragment = "", ""
	return parsed.String()
}

// redactedPart stands for a part of a URL that is not shown.
const redactedPart = "xxxxx"

// exposed reports whether others could replace the key set on its way.
func (u keySetURL) exposed() bool {
	parsed, err := url.Parse(string(u))
	return err == nil && parsed.Scheme == "http" && !isPrivate(parsed.Hostname())
}

func (*keySetURL) takes() string { return "a URL such as https://id.example.com/jwks.json" }

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
		return fmt.Errorf("%q is not valid", text)
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
			return network, fmt.Errorf("%q is not an IP address or network", item)
		case network != network.Masked():
			return network, fmt.Errorf("%q has bits set after its prefix: for the network, write %s", item, network.Masked())
		}
		return network, nil
	})
}

func (*networks) takes() string {
	return "comma-separated IP addresses and networks, such as 10.0.0.0/8"
}

// origins is a setting that is a list of origins of web pages, or * for any.
type origins []string

func (o *origins) set(text string) error {
	return each(text, (*[]string)(o), func(item string) (string, error) { return item, api.CheckOrigin(item) })
}

func (*origins) takes() string {
	return "comma-separated origins, such as https://app.example.com, https://*.example.com or http://localhost:*, or * for any origin"
}

// hosts is a setting that is a list of host names, or * for any.
type hosts []string

func (h *hosts) set(text string) error {
	return each(text, (*[]string)(h), func(item string) (string, error) { return item, api.CheckHost(item) })
}

func (*hosts) takes() string {
	return "comma-separated host names, such as presence.example.com or *.example.com, or * for any name"
}
