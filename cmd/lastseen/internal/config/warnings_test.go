package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWarnsOfServersOpenToPages: with * any page that is opened on this machine has full access.
func TestWarnsOfServersOpenToPages(t *testing.T) {
	for content, warned := range map[string]string{
		"cors-origins: '*'":                                  "cors-origins is * (",
		"cors-origins: 'https://a.example.com, *'":           "cors-origins is https://a.example.com, * (",
		"auth: none\ncors-origins: ['*']":                    "cors-origins is * (",
		"allowed-hosts: '*'":                                 "allowed-hosts is * (",
		"cors-origins: '*'\n" + aKey:                         "",
		"allowed-hosts: '*'\n" + aKey:                        "",
		"cors-origins: https://*.example.com":                "",
		"allowed-hosts: '*.example.com'":                     "",
		names + "cors-origins: '*'\njwt-jwks-url: https://a": "",
	} {
		c := load(t, content)
		if warned == "" {
			require.Empty(t, c.Warnings, content)
			continue
		}
		require.Len(t, c.Warnings, 1, content)
		require.True(t, strings.HasPrefix(c.Warnings[0], warned), c.Warnings[0])
		require.Contains(t, c.Warnings[0], "any web page")
	}
}
