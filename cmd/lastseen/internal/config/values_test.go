package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValues(t *testing.T) {
	for content, want := range map[string]string{
		"log-level: loud":                       `lastseen.yaml:1: log-level: "loud" is not valid; use debug, info, warn or error`,
		"rate-limit: 0":                         `lastseen.yaml:1: rate-limit: "0" is not valid; use off, or a number from 1 to 1000000`,
		"user-rate-limit: 1.5":                  `lastseen.yaml:1: user-rate-limit: "1.5" is not valid; use off, or a number from 1 to 1000000`,
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
		"24MiB": 24 << 20, "1024MiB": 1 << 30, "1GiB": 1 << 30,
		"1024GiB": 1 << 40,
	} {
		c, err := loadText(t, "body-memory: "+text)
		require.NoError(t, err)
		require.Equal(t, want, c.BodyMemory, text)
	}
}

// TestLeeway: the maximum also holds before JWTs are configured.
func TestLeeway(t *testing.T) {
	require.Len(t, problemsOf(t, "jwt-leeway: 6m"), 1)
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
