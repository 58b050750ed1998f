package config

import (
	"errors"
	"fmt"
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
	"github.com/lastseen/lastseen/store/redisstore"
)

// format is how the text of a setting is read.
type format struct {
	takes   string // for people: what is allowed
	parse   func(text string) (any, error)
	text    bool                     // any text, so a file must quote what YAML reads as something else
	display func(text string) string // removes secrets; nil if there are none
}

// The values of settings that are one of several words.
const (
	AuthAuto = "auto" // requests need credentials if API keys or JWTs are configured
	AuthNone = "none" // requests need no credentials

	RefuseUnknown = "refuse" // do not serve namespaces that are not configured

	off = "off"
)

// The values that some settings accept, for people.
const (
	takesPatterns = "comma-separated namespaces (chat-* matches names that start with chat-, * matches all)"
	takesNetworks = "comma-separated IP addresses and networks, such as 10.0.0.0/8"
	takesOrigins  = "comma-separated origins, such as https://app.example.com, https://*.example.com or " +
		"http://localhost:*, or * for any origin"
	takesHosts  = "comma-separated host names, such as presence.example.com or *.example.com, or * for any name"
	takesKeySet = "a URL such as https://id.example.com/jwks.json"
)

// Bounds that are higher than any server needs.
const (
	maxRate       = 1_000_000  // requests per second
	maxConns      = 10_000_000 // connections
	maxBodyMemory = 1 << 40    // bytes
)

// formats returns all formats by the name in the tag format, or else by the type of the field. The bounds are
// those of a number; a low of 0 allows a duration of 0.
func formats(low, high int) map[string]format {
	duration := format{takes: "a duration from 1ms to 10 years", parse: durationOr()}
	if low == 0 {
		duration = format{takes: "0, or " + duration.takes, parse: durationOr("0", "0s")}
	}
	size := fmt.Sprintf("a size from %dMiB to %dGiB", api.MinBodyMemory>>20, maxBodyMemory>>30)
	const outOfRange = "is out of range"
	number := func(low, high int) string { return fmt.Sprintf("a number from %d to %d", low, high) }

	return map[string]format{
		"string":          {takes: "text", parse: parseText, text: true},
		"store":           {takes: "text", parse: parseText, text: true, display: displayStore},
		"int":             {takes: number(low, high), parse: boundedNumber(low, high)},
		"rate":            {takes: "off, or " + number(1, maxRate), parse: numberOr(off, maxRate, "is not valid")},
		"connections":     {takes: "auto, or " + number(1, maxConns), parse: numberOr("auto", maxConns, outOfRange)},
		"size":            {takes: size, parse: parseSize},
		"time.Duration":   duration,
		"retention":       {takes: "off, or a duration", parse: durationOr(off)},
		"bool":            {takes: "on or off", parse: parseSwitch},
		"slog.Level":      {takes: "debug, info, warn or error", parse: parseLevel},
		"log-format":      {takes: "text or json", parse: oneOf("is not a format", "text", "json")},
		"auth":            {takes: "auto or none", parse: oneOf("is not valid", AuthAuto, AuthNone)},
		"unknown":         {takes: "allow or refuse", parse: oneOf("is not valid", "allow", RefuseUnknown)},
		"redisstore.Unit": {takes: "ms or s", parse: oneOf("is not a unit", "ms", "s")},
		"address":         {takes: "HOST:PORT, or :PORT for all addresses", parse: parseAddress},
		"key-set":         {takes: takesKeySet, parse: parseKeySetURL, display: displayKeySetURL},
		"[]auth.Pattern":  {takes: takesPatterns, parse: listOf(auth.ParsePattern)},
		"[]netip.Prefix":  {takes: takesNetworks, parse: listOf(parseNetwork)},
		"origins":         {takes: takesOrigins, parse: listOf(checked(api.CheckOrigin))},
		"hosts":           {takes: takesHosts, parse: listOf(checked(api.CheckHost))},
	}
}

func parseText(text string) (any, error) { return text, nil }

// oneOf reads one of several words; wrong says what others are not.
func oneOf(wrong string, words ...string) func(string) (any, error) {
	return func(text string) (any, error) {
		if !slices.Contains(words, text) {
			return nil, fmt.Errorf("%q %s", text, wrong)
		}
		return text, nil
	}
}

func parseSwitch(text string) (any, error) {
	_, err := oneOf("is not valid", "on", off)(text)
	return text == "on", err
}

func parseLevel(text string) (any, error) {
	var level slog.Level
	_, err := oneOf("is not a log level", "debug", "info", "warn", "error")(text)
	if err == nil {
		err = level.UnmarshalText([]byte(text))
	}
	return level, err
}

func boundedNumber(low, high int) func(string) (any, error) {
	return func(text string) (any, error) {
		n, err := strconv.Atoi(text)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return nil, fmt.Errorf("%q is not a whole number", text)
		case err != nil || n < low || n > high:
			return nil, fmt.Errorf("%s is out of range", text)
		}
		return n, nil
	}
}

// numberOr reads a number from 1 to high, or the word that stands for 0; wrong says what other texts are.
func numberOr(zero string, high int, wrong string) func(string) (any, error) {
	return func(text string) (any, error) {
		if text == zero {
			return 0, nil
		}
		n, err := boundedNumber(1, high)(text)
		if err != nil {
			err = fmt.Errorf("%q %s", text, wrong)
		}
		return n, err
	}
}

func parseSize(text string) (any, error) {
	number := strings.TrimRight(text, "KMGTiB")
	unit, ok := map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}[strings.TrimPrefix(text, number)]
	if !ok {
		return nil, fmt.Errorf("%q has no unit", text)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxBodyMemory/unit || n*unit < api.MinBodyMemory {
		return nil, fmt.Errorf("%q is out of range", text)
	}
	return n * unit, nil
}

// durationOr reads a duration, or a word that stands for 0.
func durationOr(zeros ...string) func(string) (any, error) {
	return func(text string) (any, error) {
		switch {
		case slices.Contains(zeros, text):
			return time.Duration(0), nil
		case text == "0" || text == "0s":
			return nil, errors.New("is 0")
		}
		return lastseen.ParseConfigDuration(text)
	}
}

func parseAddress(text string) (any, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return nil, fmt.Errorf("%q has no valid port", text)
	}
	return text, nil
}

// isLocal reports whether only this machine can reach a host.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ParseList reads items separated by commas.
func ParseList[T any](text string, parse func(string) (T, error)) (items []T, err error) {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return nil, errors.New("has an empty item")
		}
		parsed, err := parse(item)
		if err != nil {
			return nil, err
		}
		items = append(items, parsed)
	}
	return items, nil
}

// ParsePatterns reads patterns of namespaces separated by commas. The error says what is allowed.
func ParsePatterns(text string) ([]auth.Pattern, error) {
	patterns, err := ParseList(text, auth.ParsePattern)
	if err != nil {
		return nil, fmt.Errorf("%w; use %s", err, takesPatterns)
	}
	return patterns, nil
}

func listOf[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(text string) (any, error) { return ParseList(text, parse) }
}

// checked reads a text that a check accepts.
func checked(check func(string) error) func(string) (string, error) {
	return func(item string) (string, error) { return item, check(item) }
}

func parseNetwork(item string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(item); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(item)
	switch {
	case err != nil:
		return network, fmt.Errorf("%q is not an IP address or network", item)
	case network != network.Masked():
		return network, fmt.Errorf("%q has bits set after its prefix: for the network, write %s",
			item, network.Masked())
	}
	return network, nil
}

// redisScheme matches the start of a Redis URL, also of one with a mistake after the colon: redis:/host.
var redisScheme = regexp.MustCompile(`(?i)^rediss?(\+[a-z]*)?:`)

// IsStoreURL reports whether the text of a store is meant as a URL, and not as the name of a file.
func IsStoreURL(text string) bool {
	return strings.Contains(text, "://") || redisScheme.MatchString(text)
}

func displayStore(text string) string {
	if IsStoreURL(text) {
		return redisstore.Redact(text)
	}
	return text
}

func parseKeySetURL(text string) (any, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http":
		return nil, errors.New("is not an http or https URL") // and not shown: it may hold a password
	case parsed.User != nil:
		return nil, errors.New("has a user name or a password: a key set is public and needs neither")
	}
	return text, nil
}

// displayKeySetURL returns a valid URL without its query, which may be a secret, and without its fragment.
func displayKeySetURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	if address, _, found := strings.Cut(text, "?"); found {
		return address + "?xxxxx"
	}
	return text
}
