package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// topology is how the Redis servers behind a URL belong together.
type topology string

const (
	single   topology = ""
	sentinel topology = "sentinel" // the URL's hosts are Sentinels, which know the primary
	cluster  topology = "cluster"  // the URL's hosts are some nodes, which know all others
)

// address is a store URL, taken apart:
//
//	redis[s]://[user:password@]host[:port][/database][?options]
//	redis[s]+sentinel://[user:password@]host[:port],…[/database]?master=NAME[&options]
//	redis[s]+cluster://[user:password@]host[:port],…[?options]
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

// The options of a store URL. Everything that has a flag has no option.
const (
	optMaster           = "master"
	optSentinelUser     = "sentinel-user"
	optSentinelPassword = "sentinel-password" //nolint:gosec // the option's name
	optCA               = "tls-ca"
	optCert             = "tls-cert"
	optKey              = "tls-key"
	optServerName       = "tls-server-name"
	optInsecure         = "tls-insecure-skip-verify"
)

// errAmbiguous is the error of a URL whose password may be taken for something else.
var errAmbiguous = errors.New("a password is written with %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %")

// parseAddress takes a store URL apart. No error shows a part of it.
func parseAddress(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	a := address{scheme: scheme}
	if !ok || !a.readScheme() {
		return address{}, errors.New("it begins with redis://, redis+sentinel:// or redis+cluster://, or with rediss… for TLS")
	}
	authority, rest := cutBefore(rest, "/?#")
	if strings.ContainsAny(rest, "@#") {
		return address{}, errAmbiguous
	}
	path, query, _ := strings.Cut(rest, "?")
	hosts, err := a.readUser(authority)
	if err != nil {
		return address{}, err
	}
	if err := a.readHosts(hosts); err != nil {
		return address{}, err
	}
	if err := a.readDatabase(path); err != nil {
		return address{}, err
	}
	if a.options, err = url.ParseQuery(query); err != nil {
		return address{}, errors.New("the options are not name=value&name=value")
	}
	return a, nil
}

// cutBefore divides text before the first of some characters.
func cutBefore(text, chars string) (before, from string) {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// readScheme reports whether the scheme is one of ours.
func (a *address) readScheme() bool {
	base, extra, _ := strings.Cut(a.scheme, "+")
	a.topology, a.encrypt = topology(extra), base == "rediss"
	plain := !strings.HasSuffix(a.scheme, "+")
	return plain && (base == "redis" || base == "rediss") && slices.Contains([]topology{single, sentinel, cluster}, a.topology)
}

// readUser takes user and password off the front of the authority, and returns the hosts.
func (a *address) readUser(authority string) (hosts string, err error) {
	at := strings.LastIndex(authority, "@")
	if at < 0 {
		return authority, nil
	}
	user, password, _ := strings.Cut(authority[:at], ":")
	var errs [2]error
	a.user, errs[0] = url.PathUnescape(user)
	a.password, errs[1] = url.PathUnescape(password)
	if errors.Join(errs[:]...) != nil {
		return "", errAmbiguous
	}
	return authority[at+1:], nil
}

// readHosts reads host[:port],host[:port].
func (a *address) readHosts(hosts string) error {
	all := strings.Split(hosts, ",")
	if len(all) > 1 && a.topology == single {
		return errors.New("several hosts: those of Sentinels follow redis+sentinel://, those of a Cluster redis+cluster://")
	}
	for _, text := range all {
		host, err := a.readHost(text)
		if err != nil {
			return err
		}
		a.hosts = append(a.hosts, host)
	}
	return nil
}

// readHost reads one host[:port]; an IPv6 address stands in brackets.
func (a *address) readHost(text string) (string, error) {
	host, port, hasPort := strings.Cut(text, ":")
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if host, port, ok = strings.Cut(inside, "]"); !ok {
			return "", errors.New("an IPv6 address without its closing bracket")
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return "", errors.New("brackets must contain an IPv6 address")
		}
		if port, hasPort = strings.CutPrefix(port, ":"); !hasPort && port != "" {
			return "", errors.New("only a port can follow an IPv6 address")
		}
	}
	switch {
	case strings.Contains(port, ":"):
		return "", errors.New("a host with several colons: put an IPv6 address in brackets")
	case host == "":
		return "", errors.New("an empty host")
	case !hasPort && a.topology == sentinel:
		port = sentinelPort
	case !hasPort:
		port = redisPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port is a number from 1 to 65535")
	}
	if strings.ContainsAny(host, " \t%") && !strings.HasPrefix(text, "[") {
		return "", errors.New("a host name without spaces and percent signs")
	}
	return net.JoinHostPort(host, port), nil
}

// readDatabase reads the path, which is a database number or empty.
func (a *address) readDatabase(path string) error {
	number := strings.TrimPrefix(path, "/")
	if number == "" {
		return nil
	}
	if a.topology == cluster {
		return errors.New("a Cluster has no databases: leave the number out")
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return errors.New("only a database number can follow the host")
	}
	a.database, a.path = int(n), path
	return nil
}

// checkOptions returns an error if there is an option that is unknown, given twice, of another kind of
// URL, or missing. It names no value.
func (a address) checkOptions() error {
	allowed := map[string]bool{
		optMaster: a.topology == sentinel, optSentinelUser: a.topology == sentinel, optSentinelPassword: a.topology == sentinel,
		optCA: a.encrypt, optCert: a.encrypt, optKey: a.encrypt, optServerName: a.encrypt, optInsecure: a.encrypt,
	}
	for name, values := range a.options {
		here, known := allowed[name]
		switch {
		case !known:
			return errors.New("an unknown option: there are master, sentinel-user and sentinel-password, " +
				"and tls-ca, tls-cert, tls-key, tls-server-name, tls-insecure-skip-verify; " +
				"pool, timeouts and retries have flags (--redis-…), the database follows the host")
		case !here && strings.HasPrefix(name, "tls-"):
			return fmt.Errorf("the option %s is for URLs that begin with rediss", name)
		case !here:
			return fmt.Errorf("the option %s is for redis+sentinel://", name)
		case len(values) > 1:
			return fmt.Errorf("the option %s is there twice", name)
		case values[0] == "":
			return fmt.Errorf("the option %s is empty", name)
		}
	}
	if a.topology == sentinel && !a.options.Has(optMaster) {
		return errors.New("the name that the Sentinels give to the primary is missing: add ?master=NAME")
	}
	return nil
}

// String returns the URL without its passwords, without a user that has no password, and without its options but the
// master's name.
func (a address) String() string {
	var b strings.Builder
	b.WriteString(a.scheme + "://")
	switch {
	case a.password != "":
		b.WriteString(url.UserPassword(a.user, "xxxxx").String() + "@")
	case a.user != "":
		b.WriteString("xxxxx@") // which may be a password by mistake
	}
	b.WriteString(strings.Join(a.hosts, ",") + a.path)
	if a.topology == sentinel && a.options.Has(optMaster) {
		b.WriteString("?" + optMaster + "=" + url.QueryEscape(a.options.Get(optMaster)))
	}
	return b.String()
}

// unreadable stands for a URL of which no part can be shown.
const unreadable = "(unreadable)"

// Redact returns a store URL without its passwords, without a user that has no password, and without its options but the
// master's name, for messages. Of a URL in which a password could be taken for something else it shows nothing: an
// unescaped slash in it, for one, begins the path.
func Redact(rawURL string) string {
	a, err := parseAddress(rawURL)
	if err != nil {
		return unreadable
	}
	return a.String()
}
