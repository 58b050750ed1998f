package redisclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAddress: an address that is taken can be written without its secrets and is read as the same; neither that
// nor an error shows a secret.
func FuzzAddress(f *testing.F) {
	f.Add("redis://:", "@host:1/3")
	f.Add("redis+sentinel://u:", "@a,b:2/1?master=m&sentinel-user=s&sentinel-password=p")
	f.Add("rediss+cluster://u:p", "@[fe80::1]:7,b?tls-ca=f")
	f.Add("redis+sentinel://a?master=m&sentinel-password=", "&tls-key=x")
	f.Add("redis://u:p/", "?@h")
	const secret = "geheim-7531"
	f.Fuzz(func(t *testing.T, before, after string) {
		raw := before + secret + after
		shown := Redact(raw)
		a, err := parseAddress(raw)
		if err != nil {
			require.NotContains(t, err.Error(), secret)
			require.Equal(t, unreadable, shown)
			return
		}
		if err := a.checkOptions(); err != nil {
			require.NotContains(t, err.Error(), secret)
		}
		if a.user != "" && a.password == "" {
			a.user = "xxxxx" // which may be a password by mistake
		}
		if public := fmt.Sprint(a.user, a.hosts, a.options.Get(optMaster)); !strings.Contains(public, secret) {
			require.NotContains(t, shown, secret)
		}
		again, err := parseAddress(shown)
		require.NoError(t, err, shown)
		require.Equal(t, shown, again.String())
		require.Equal(t, []any{a.topology, a.encrypt, a.user, a.hosts, a.database},
			[]any{again.topology, again.encrypt, again.user, again.hosts, again.database})
	})
}
