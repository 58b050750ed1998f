package config

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValues(t *testing.T) {
	for content, want := range map[string]string{
		"log-level: loud":                       `lastseen.yaml:1: log-level: "loud" is not valid; use debug, info, warn or error`,
		"log-format: xml":                       `lastseen.yaml:1: log-format: "xml" is not valid; use text or json`,
		"access-log: yes":                       `lastseen.yaml:1: access-log: "yes" is not valid; use on or off`,
		"rate-limit: 0":                         `lastseen.yaml:1: rate-limit: "0" is not valid; use off, or a number from 1 to 1000000`,
		"user-rate-limit: 1.5":                  `lastseen.yaml:1: user-rate-limit: "1.5" is not valid; use off, or a number from 1 to 1000000`,
		"listen: 127.0.0.1:99999":               `lastseen.yaml:1: listen: "127.0.0.1:99999" has no port from 0 to 65535; use HOST:PORT, or :PORT for all addresses`,
		"listen: '127.0.0.1:'":                  `lastseen.yaml:1: listen: "127.0.0.1:" has no port from 0 to 65535; use HOST:PORT, or :PORT for all addresses`,
		"admin-listen: 127.0.0.1":               `lastseen.yaml:1: admin-listen: "127.0.0.1" is not valid: missing port in address; use HOST:PORT, :PORT for all addresses, or off`,
		"listen: '::1:80'":                      `lastseen.yaml:1: listen: "::1:80" is not valid: too many colons in address; use HOST:PORT, or :PORT for all addresses`,
		"trusted-proxies: 10.0.0.1/8":           `lastseen.yaml:1: trusted-proxies: "10.0.0.1/8" has bits set after its prefix: for the network, write 10.0.0.0/8; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: nginx":                `lastseen.yaml:1: trusted-proxies: "nginx" is not valid; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: '10.0.0.1,,10.0.0.2'": `lastseen.yaml:1: trusted-proxies: has an empty item; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: []":                   `lastseen.yaml:1: trusted-proxies is empty; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: {a: b}":               `lastseen.yaml:1: trusted-proxies holds a mapping; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
	} {
		require.Equal(t, []string{want}, problemsOf(t, content), content)
	}
	c, err := loadText(t,
		"rate-limit: off\nuser-rate-limit: 7\ntrusted-proxies: [10.0.0.0/8, '::1']\ncors-origins: 'https://a.example.com,http://localhost:3000'\n")
	require.NoError(t, err)
	require.Zero(t, c.RateLimit)
	require.Equal(t, 7, c.UserRateLimit)
	require.Equal(t, "[10.0.0.0/8 ::1/128]", strings.TrimSpace(fmt.Sprint(c.TrustedProxies)))
	require.Equal(t, []string{"https://a.example.com", "http://localhost:3000"}, c.CORSOrigins)
	requireRoundTrip(t, c)
}

func TestBodyMemorySetting(t *testing.T) {
	for text, want := range map[string]int64{
		"24MiB": 24 << 20, "1024MiB": 1 << 30, "1GiB": 1 << 30, "1024GiB": 1 << 40,
		"64": 0, "64MB": 0, "23MiB": 0, "1025GiB": 0, "99999999999999999999GiB": 0, "-1GiB": 0,
	} {
		c, err := loadText(t, "body-memory: "+text)
		if want == 0 {
			require.ErrorContains(t, err, `"`+text+`" is not valid; use a size from 24MiB to 1024GiB`)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, c.BodyMemory, text)
	}
}

// TestNumbers: what is no number, or not within the bounds.
func TestNumbers(t *testing.T) {
	for content, takes := range map[string]string{
		"redis-shards: %s": "a number from 1 to 64", "max-connections: %s": "auto, or a number from 1 to ",
		"redis-pool-size: %s": "",
	} {
		for _, text := range []string{"0", "-1", "65", "99999999999999999999", "4.0", "many"} {
			if text == "65" && takes != "a number from 1 to 64" || text == "0" && takes == "" {
				continue
			}
			_, err := loadText(t, fmt.Sprintf(content, text))
			require.ErrorContains(t, err, strconv.Quote(text)+" is not valid; use "+takes, content)
		}
	}
	require.Len(t, problemsOf(t, "redis-score-unit: us"), 1)
	require.Len(t, problemsOf(t, "yellow: 11y"), 1)
}

// TestLeeway: the maximum also holds before JWTs are configured.
func TestLeeway(t *testing.T) {
	for _, leeway := range []string{"5m1ms", "6m", "87600h"} {
		problems := problemsOf(t, "jwt-leeway: "+leeway)
		require.Len(t, problems, 1)
		require.Regexp(t, "^jwt-leeway is "+leeway+" .*5m", problems[0])
	}
	require.Empty(t, problemsOf(t, "jwt-leeway: 0"))
	c, err := loadText(t, "jwt-leeway: 5m")
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, c.JWTLeeway)
}

func TestAllowedHosts(t *testing.T) {
	c, err := loadText(t, "allowed-hosts: ['*.example.com', nas.lan]")
	require.NoError(t, err)
	requireRoundTrip(t, c)
	hosts, _ := Find("allowed-hosts")
	require.Equal(t,
		[]string{`lastseen.yaml:1: allowed-hosts: "https://a.example" is not a host name: use presence.example.com, or *.example.com for all names that end in it, in lower case and without a port; use ` + hosts.Takes},
		problemsOf(t, "allowed-hosts: https://a.example"))
}

// TestWebSocketSettings checks bounds, and that a limit within another one is not larger.
func TestWebSocketSettings(t *testing.T) {
	for content, problem := range map[string]string{
		"disconnect-grace: 61s": "disconnect-grace is 61s (lastseen.yaml:1): the maximum is 1m",
		"connect-drain: 601s":   "connect-drain is 601s (lastseen.yaml:1): the maximum is 10m",
		"max-connections: 10\nmax-websockets: 11": "max-websockets is 11 (lastseen.yaml:2) and max-connections is 10 " +
			"(lastseen.yaml:1): WebSocket connections are part of max-connections, so max-websockets cannot exceed it",
	} {
		require.Equal(t, []string{problem}, problemsOf(t, content))
	}
	c, err := loadText(t, "disconnect-grace: 1m\nconnect-drain: 10m\nmax-connections: 10\nmax-websockets: 10\n"+
		"max-address-websockets: off\nnamespaces:\n  chat:\n    show-kinds: on\n    ping-interval: 7s\n")
	require.NoError(t, err)
	require.Equal(t, time.Minute, c.DisconnectGrace)
	require.Zero(t, c.MaxAddressWebsockets)
	require.True(t, c.Namespace("chat").ForAPI().ShowKinds)
	require.False(t, c.ForAPI().ShowKinds)
	require.Equal(t, 7*time.Second, c.Connections("chat").PingInterval)
	require.Equal(t, 30*time.Second, c.Connections("other").PingInterval)
	requireRoundTrip(t, c)
}
