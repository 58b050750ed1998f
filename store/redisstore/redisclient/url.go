package redisclient

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// topology is how the Redis servers behind a URL are related.
type topology string

const (
	single   topology = ""
	sentinel topology = "sentinel" // the URL's hosts are Sentinels, which know the primary
	cluster  topology = "cluster"  // the URL's hosts are some nodes, which know all others
)

// address is a parsed store URL; docs/decisions/redis-topologies.md has its forms. The parsers of go-redis accept
// neither several hosts nor every password, and their errors quote the URL.
type address struct {
	scheme   string
	topology topology
	encrypt  bool
	user     string
	password string
	hosts    []string // each host:port
	database int
	path     string     // the database as it was written
	options  url.Values // each once
}

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// The options of a store URL. Settings with a flag have none.
const (
	optMaster           = "master"
	optSentinelUser     = "sentinel-user"
	optSentinelPassword = "sentinel-password" //nolint:gosec // the option's name
	optCA               = "tls-ca"
	optCert             = "tls-cert"
	optTLSKey           = "tls-key"
	optServerName       = "tls-server-name"
	optInsecure         = "tls-insecure-skip-verify"
)

var (
	errAmbiguous = errors.New("write a password with %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %")
	errHost      = errors.New("invalid host: use a name without spaces or an IPv6 address in brackets, " +
		"optionally followed by a colon and a port from 1 to 65535")
)

// parseAddress parses a store URL. No error shows a part of it.
func parseAddress(raw string) (a address, err error) {
	scheme, rest, found := strings.Cut(raw, "://")
	a = address{scheme: scheme, encrypt: strings.HasPrefix(scheme, "rediss")}
	base, suffix, several := strings.Cut(scheme, "+")
	a.topology = topology(suffix)
	if !found || base != "redis" && base != "rediss" || several && a.topology != sentinel && a.topology != cluster {
		return address{}, errors.New("it must begin with redis://, redis+sentinel:// or redis+cluster://, " +
			"or with rediss for redis to use TLS")
	}
	end := strings.IndexAny(rest+"/", "/?#")
	authority, rest := rest[:end], rest[end:]
	if strings.ContainsAny(rest, "@#") {
		return address{}, errAmbiguous
	}
	path, query, _ := strings.Cut(rest, "?")
	at := strings.LastIndex(authority, "@")
	err = cmp.Or(a.readUser(authority[:max(at, 0)]), a.readHosts(authority[at+1:]), a.readDatabase(path))
	if err != nil {
		return address{}, err
	}
	if a.options, err = url.ParseQuery(query); err != nil {
		return address{}, errors.New("the options must have the form name=value&name=value")
	}
	return a, nil
}

func (a *address) readUser(text string) (err error) {
	user, password, _ := strings.Cut(text, ":")
	if a.user, err = url.PathUnescape(user); err == nil {
		a.password, err = url.PathUnescape(password)
	}
	if err != nil {
		return errAmbiguous
	}
	return nil
}

// hostPattern matches one host[:port]; an IPv6 address is in brackets.
var hostPattern = regexp.MustCompile(`^(?:\[([^\]]+)\]|([^\[\]:%\s]+))(?::(\d+))?$`)

// readHosts reads host[:port],host[:port].
func (a *address) readHosts(text string) error {
	all := strings.Split(text, ",")
	if len(all) > 1 && a.topology == single {
		return errors.New("several hosts: use redis+sentinel:// for Sentinels, redis+cluster:// for a Cluster")
	}
	defaultPort := redisPort
	if a.topology == sentinel {
		defaultPort = sentinelPort
	}
	for _, text := range all {
		if text == "" || text[0] == ':' && strings.Count(text, ":") == 1 {
			return errors.New("empty host")
		}
		m := hostPattern.FindStringSubmatch(text)
		if m == nil {
			return errHost
		}
		port := cmp.Or(m[3], defaultPort)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errHost
		}
		if _, err := netip.ParseAddr(m[1]); err != nil && m[1] != "" {
			return errHost
		}
		a.hosts = append(a.hosts, net.JoinHostPort(m[1]+m[2], port))
	}
	return nil
}

// readDatabase reads the path, which is a database number or empty.
func (a *address) readDatabase(path string) error {
	number := strings.TrimPrefix(path, "/")
	if number == "" {
		return nil
	}
	if a.topology == cluster {
		return errors.New("a Cluster has no databases: omit the number")
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return errors.New("only a database number can follow the host")
	}
	a.database, a.path = int(n), path
	return nil
}

// checkOptions returns an error if an option is unknown, repeated, empty, for another type of URL, or missing. The
// error shows no value.
func (a address) checkOptions() error {
	for name, values := range a.options {
		fits, scheme := a.encrypt, "rediss"
		switch name {
		case optMaster, optSentinelUser, optSentinelPassword:
			fits, scheme = a.topology == sentinel, "redis+sentinel"
		case optCA, optCert, optTLSKey, optServerName, optInsecure:
		default:
			return errors.New("unknown option: use master, sentinel-user, sentinel-password, tls-ca, tls-cert, " +
				"tls-key, tls-server-name or tls-insecure-skip-verify; " +
				"pool, timeouts and retries have flags (--redis-…), the database follows the host")
		}
		switch {
		case !fits:
			return fmt.Errorf("the option %s is for %s:// URLs", name, scheme)
		case len(values) > 1:
			return fmt.Errorf("the option %s is given twice", name)
		case values[0] == "":
			return fmt.Errorf("the option %s is empty", name)
		}
	}
	if a.topology == sentinel && !a.options.Has(optMaster) {
		return errors.New("missing the Sentinels' name for the primary: add ?master=NAME")
	}
	return nil
}

// String returns the URL as described for Redact. A user that has no password may be one, by mistake.
func (a address) String() string {
	var b strings.Builder
	b.WriteString(a.scheme + "://")
	switch {
	case a.password != "":
		b.WriteString(url.UserPassword(a.user, "xxxxx").String() + "@")
	case a.user != "":
		b.WriteString("xxxxx@")
	}
	b.WriteString(strings.Join(a.hosts, ",") + a.path)
	if a.topology == sentinel && a.options.Has(optMaster) {
		b.WriteString("?" + optMaster + "=" + url.QueryEscape(a.options.Get(optMaster)))
	}
	return b.String()
}

// unreadable replaces a URL that cannot be shown, not even in part.
const unreadable = "(unreadable)"

// Redact returns a store URL for messages: without its passwords, without a user that has no password, and without its
// options except the master's name. It hides a URL that it cannot parse: an unescaped slash in a password, for example,
// begins the path.
func Redact(rawURL string) string {
	a, err := parseAddress(rawURL)
	if err != nil {
		return unreadable
	}
	return a.String()
}

// IsCluster reports whether a store URL is that of a Cluster.
func IsCluster(rawURL string) bool {
	a, err := parseAddress(rawURL)
	return err == nil && a.topology == cluster
}
