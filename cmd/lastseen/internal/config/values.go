package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/store/redisstore"
)

// format is how the text of a setting is read.
type format struct {
	takes   string // for people: what is allowed
	parse   func(text string) (any, error)
	text    bool                     // any text, so a file must quote what YAML reads as something else
	display func(text string) string // masks secrets; nil if the text has no secrets
}

// The values of settings that are one of several words.
const (
	AuthAuto = "auto" // requests need credentials if API keys or JWTs are configured
	AuthNone = "none" // requests need no credentials

	RefuseUnknown = "refuse" // do not serve namespaces that are not configured

	ReadFromReplica = "replica" // replicas answer reads of API keys where they can
)

// maxBodyMemory is more than any server needs, in bytes.
const maxBodyMemory = 1 << 40

// formats returns all formats by the name in the tag format, or else by the type of the field. The bounds are
// those of a number; the tag has those of a duration, and the choices of an enum.
func formats(low, high int, tag reflect.StructTag) map[string]format {
	choices := strings.Split(tag.Get("placeholder"), "|")
	shortest, longest := cmp.Or(tag.Get("min"), "1ms"), cmp.Or(tag.Get("max"), "10 years")
	size := fmt.Sprintf("a size from %dMiB to %dGiB", api.MinBodyMemory>>20, maxBodyMemory>>30)
	levels := words{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

	return map[string]format{
		"string": {takes: "text", parse: parseText, text: true},
		"store":  {takes: "text", parse: parseText, text: true, display: displayStore},
		"int":    {takes: fmt.Sprintf("a number from %d to %d", low, high), parse: boundedNumber(low, high)},
		"size":   {takes: size, parse: parseSize},
		"time.Duration": {
			takes: "a duration from " + shortest + " to " + longest, parse: boundedDuration(shortest, longest),
		},
		"bool":       {takes: "on or off", parse: words{"on": true, "off": false}.parse},
		"enum":       {takes: enumeration(choices), parse: oneOf(choices)},
		"slog.Level": {takes: "debug, info, warn or error", parse: levels.parse},
		"address":    {takes: "HOST:PORT, or :PORT for all addresses", parse: parseAddress},
		"key-set": {
			takes: "a URL such as https://id.example.com/jwks.json", parse: parseURL,
			display: displayURL,
		},
		"collector": {takes: "a URL such as http://localhost:4318/v1/traces", parse: parseURL, display: displayURL},
		"receiver":  {takes: "an http or https URL", parse: parseReceiver},
		"[]auth.Pattern": {parse: listOf(auth.ParsePattern), takes: "namespaces (chat-* matches names that " +
			"start with chat-, * matches all)"},
		"[]netip.Prefix": {takes: "IP addresses and networks, such as 10.0.0.0/8", parse: listOf(parseNetwork)},
		"origins": {parse: listOf(checked(guard.CheckOrigin)), takes: "origins, such as https://app.example.com, " +
			"https://*.example.com or http://localhost:*, or * for any origin"},
		"hosts": {parse: listOf(checked(guard.CheckHost)), takes: "host names, such as presence.example.com or " +
			"*.example.com, or * for any name"},
		"[32]uint8": {
			takes: "sha256: and 64 hexadecimal digits, as printed by lastseen key new",
			parse: single(auth.ParseKeyHash),
		},
		"[]auth.Scope": {takes: "ping, read and admin", parse: listOf(auth.ParseScope)},
	}
}

// words are the words that a format accepts, and their values.
type words map[string]any

func (w words) parse(text string) (any, error) {
	value, ok := w[text]
	if !ok {
		return invalid(text)
	}
	return value, nil
}

func invalid(text string) (any, error) { return nil, fmt.Errorf("%q is not valid", text) }

// enumeration returns choices for people: a, b or c.
func enumeration(choices []string) string {
	last := len(choices) - 1
	if last < 1 {
		return strings.Join(choices, "")
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

func oneOf(choices []string) func(string) (any, error) {
	return func(text string) (any, error) {
		if !slices.Contains(choices, text) {
			return invalid(text)
		}
		return text, nil
	}
}

func parseText(text string) (any, error) { return text, nil }

func single[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(text string) (any, error) { return parse(text) }
}

func boundedNumber(low, high int) func(string) (any, error) {
	return func(text string) (any, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return invalid(text)
		}
		return n, nil
	}
}

// boundedDuration reads a duration. Bounds that are not durations are those of all durations.
func boundedDuration(low, high string) func(string) (any, error) {
	shortest, _ := lastseen.ParseConfigDuration(low)
	longest, _ := lastseen.ParseConfigDuration(high)
	return func(text string) (any, error) {
		d, err := lastseen.ParseConfigDuration(text)
		if err == nil && (d < shortest || longest > 0 && d > longest) {
			return invalid(text)
		}
		return d, err
	}
}

func parseSize(text string) (any, error) {
	number := strings.TrimRight(text, "MGiB")
	unit := map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}[text[len(number):]]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || unit == 0 || n < 1 || n > maxBodyMemory/unit || n*unit < api.MinBodyMemory {
		return invalid(text)
	}
	return n * unit, nil
}

func parseAddress(text string) (any, error) {
	_, port, err := net.SplitHostPort(text)
	if form := (*net.AddrError)(nil); errors.As(err, &form) {
		return nil, fmt.Errorf("%q is not valid: %s", text, form.Err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return nil, fmt.Errorf("%q has no port from 0 to 65535", text)
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

func listOf[T any](parse func(string) (T, error)) func(string) (any, error) {
	return single(func(text string) ([]T, error) { return ParseList(text, parse) })
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
		return network, fmt.Errorf("%q is not valid", item)
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

func parseURL(text string) (any, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.User != nil {
		// Not shown: it may hold a password.
		return nil, errors.New("is not an http or https URL without user and password")
	}
	return text, nil
}

// parseReceiver reads the URL of a webhook, all of which can be a secret.
func parseReceiver(text string) (any, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return nil, errors.New("is not an http or https URL")
	}
	return text, nil
}

// displayURL returns a valid URL without its query, which may be a secret, and without its fragment.
func displayURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	if address, _, found := strings.Cut(text, "?"); found {
		return address + "?xxxxx"
	}
	return text
}
