package redisclient

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestParseAddress(t *testing.T) {
	for url, want := range map[string]address{
		"redis://host":                  {hosts: []string{"host:6379"}},
		"redis://host:1/3":              {hosts: []string{"host:1"}, database: 3},
		"rediss://:p@host":              {encrypt: true, password: "p", hosts: []string{"host:6379"}},
		"redis://u:a%2F%3F%23%40%25b@h": {user: "u", password: "a/?#@%b", hosts: []string{"h:6379"}},
		"redis://u:p+q^@h":              {user: "u", password: "p+q^", hosts: []string{"h:6379"}},
		"redis://[::1]":                 {hosts: []string{"[::1]:6379"}},
		"redis://[fe80::1]:7/":          {hosts: []string{"[fe80::1]:7"}},
		"redis+cluster://a,b:2,[::1]:3": {topology: cluster, hosts: []string{"a:6379", "b:2", "[::1]:3"}},
		"rediss+cluster://u:p@a/": {
			topology: cluster, encrypt: true, user: "u", password: "p",
			hosts: []string{"a:6379"},
		},
		"redis+sentinel://a,b:2/1?master=m": {topology: sentinel, hosts: []string{"a:26379", "b:2"}, database: 1},
		"rediss+sentinel://a?master=m":      {topology: sentinel, encrypt: true, hosts: []string{"a:26379"}},
	} {
		got, err := parseAddress(url)
		require.NoError(t, err, url)
		require.NoError(t, got.checkOptions(), url)
		require.Equal(t, got.topology == sentinel, got.options.Has(optMaster), url)
		got.scheme, got.path, got.options = "", "", nil
		require.Equal(t, want, got, url)
	}
}

// TestInvalidAddresses: each is refused for the reason given, which names no password.
func TestInvalidAddresses(t *testing.T) {
	for url, reason := range map[string]string{
		"redis+cluster://:geheim@a,,b":                                    "empty host",
		"redis+cluster://:geheim@a,b,":                                    "empty host",
		"redis+cluster://:geheim@":                                        "empty host",
		"redis+cluster://:geheim@:6379":                                   "empty host",
		"redis+cluster://:geheim@a,b/0":                                   "no databases",
		"redis+cluster://:geheim@a:99999":                                 "1 to 65535",
		"redis+cluster://:geheim@a:":                                      "1 to 65535",
		"redis+cluster://:geheim@::1":                                     "brackets",
		"redis+cluster://:geheim@[::1":                                    "bracket",
		"redis+cluster://:geheim@[host]":                                  "IPv6",
		"redis+cluster://:geheim@[::1]6379":                               "IPv6",
		"redis+cluster://:geheim@a?master=m":                              "master is for redis+sentinel",
		"redis+cluster://:gehe/im@a,b":                                    "%2F",
		"redis+cluster://:geheim@a b":                                     "spaces",
		"redis://:geheim@a,b":                                             "several hosts",
		"redis://:geheim@a/b":                                             "database number",
		"redis://:geheim@a/-1":                                            "database number",
		"redis://:geheim@a?pool_size=5":                                   "--redis-",
		"redis://:geheim@a?geheim=5":                                      "unknown option",
		"redis://:geheim@a?tls-ca=x":                                      "rediss",
		"redis://:geheim@a?%zz=geheim":                                    "name=value",
		"rediss://:geheim@a?tls-ca=/no/such/file":                         "/no/such/file",
		"rediss://:geheim@a?tls-ca=url_test.go":                           "no certificate",
		"rediss://:geheim@a?tls-cert=x":                                   "belong together",
		"rediss://:geheim@a?tls-cert=x&tls-key=y":                         "tls-cert and tls-key",
		"rediss://:geheim@a?tls-insecure-skip-verify=yes":                 "true or false",
		"redis+sentinel://:geheim@a,b":                                    "?master=",
		"redis+sentinel://:geheim@a,b?sentinel-password=geheim":           "?master=",
		"redis+sentinel://:geheim@a,b?master=":                            "master is empty",
		"redis+sentinel://a?master=m&master=n":                            "twice",
		"redis+sentinel://:geheim@a,b?master=m&sentinel-password=ge@heim": "%40",
		"redis+sentinel://:geheim@a,b?master=m&sentinelpassword=geheim":   "unknown option",
		"redis+://geheim@a":                                               "begin with",
		"redis+geheim://a":                                                "begin with",
		"unix:///geheim":                                                  "begin with",
		"":                                                                "begin with",
		"geheim@host:6379":                                                "begin with",
		"redis:geheim@host":                                               "begin with",
		"redis:///:geheim@host":                                           "%2F",
		"redis://:12/geheim@host:6379":                                    "%2F",
		"redis://:geheim#geheim@host":                                     "%2F",
		"redis://:geheim?geheim@host":                                     "%2F",
		"redis://:geheim%geheim@host":                                     "%2F",
		"redis://host?password=geheim":                                    "unknown option",
	} {
		err := Options{URL: url}.Validate()
		require.ErrorContains(t, err, reason, url)
		require.NotContains(t, strings.ReplaceAll(err.Error(), reason, ""), "geheim", url)
		require.NotContains(t, Redact(url), "geheim", url)
	}
}

func TestRedact(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{
			"redis+sentinel://u:geheim@a,b:1/2?master=m&sentinel-user=s&sentinel-password=geheim",
			"redis+sentinel://u:xxxxx@a:26379,b:1/2?master=m",
		},
		{"rediss+cluster://:geheim@a,[::1]:7?tls-ca=f", "rediss+cluster://:xxxxx@a:6379,[::1]:7"},
		{"redis+cluster://dot@a", "redis+cluster://xxxxx@a:6379"},
	} {
		require.Equal(t, c.want, Redact(c.url))
	}
}

// TestInsecureIsLogged: turning verification off is logged with its consequence.
func TestInsecureIsLogged(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, value := range []string{"false", "true"} {
		require.Empty(t, log.String())
		o := Options{URL: "rediss://:geheim@h?tls-insecure-skip-verify=" + value, Logger: logger}
		client, _, err := newClient(o, newGuard(o))
		require.NoError(t, err)
		require.Equal(t, value == "true", client.(*redis.Client).Options().TLSConfig.InsecureSkipVerify)
		require.NoError(t, client.Close())
	}
	require.Contains(t, log.String(), "not verified")
	require.NotContains(t, log.String(), "geheim")
}
