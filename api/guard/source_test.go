package guard

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckOrigin(t *testing.T) {
	for _, good := range []string{
		"*", "https://app.example.com", "http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:8080",
		"https://xn--caf-dma.example",
		"capacitor://localhost", "chrome-extension://abcdefghijklmnop", "https://a.example:80", "https://*.example.com",
		"https://*.example.com:8443", "https://*.eu.example.com", "http://*.example.com", "http://localhost:*",
		"https://localhost:*", "http://127.0.0.1:*", "http://[::1]:*",
	} {
		require.NoError(t, CheckOrigin(good), good)
	}
	for _, bad := range []string{
		"", "null", "app.example.com", "https://", "https://app.example.com/", "https://app.example.com/path",
		"https://App.example.com", "HTTPS://app.example.com", "https://app.example.com:443", "http://localhost:80",
		"http://localhost:", "https://café.example", "https://user@app.example.com", "https://app.example.com?x",
		"https://app.example.com#x", "https://a b", "//app.example.com", "file:///index.html", "https://a,https://b",
		"http://:3000", " https://app.example.com", "https://*", "https://*.com", "https://*.", "https://*.example.",
		"https://*.example.com.", "https://*.localhost", "https://*example.com", "https://app*.example.com",
		"https://app.*.com", "https://*.*.example.com", "https://example.*", "*.example.com", "*://app.example.com",
		"https://*.Example.com", "https://*.example.com/", "https://*.example.com:443", "https://*.example.com:*",
		"https://*.127.0.0.1", "https://*.0.1", "https://*.[::1]", "https://u@*.example.com", "http://localhost:3*",
		"http://localhost:**", "http://localhost:*/", "http://app.example.com:*", "http://10.0.0.1:*",
		"http://0.0.0.0:*", "http://LOCALHOST:*", "ftp://*", "**", "https://*..example.com", "https://*.-example.com",
		"https://*.exa_mple.com/",
	} {
		require.Error(t, CheckOrigin(bad), bad)
	}
}

// FuzzOrigin checks that an accepted origin has the form that browsers send, or is a pattern that matches no other
// host.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{
		"*", "https://app.example.com", "http://localhost:3000", "https://a/", "null", "https://A.example",
		"https://[::1]:1", "https://*.a", "https://u@a",
		"https://*.example.com:1", "http://localhost:*", "http://[::1]:*",
	} {
		f.Add(seed, "https://a.example.com")
		f.Add("https://*.example.com", seed)
		f.Add("http://localhost:*", seed)
	}
	f.Fuzz(func(t *testing.T, allowed, origin string) {
		if CheckOrigin(allowed) != nil || allowed == "*" {
			return
		}
		exact := strings.NewReplacer("://*.", "://", ":*", "").Replace(allowed)
		u, err := url.Parse(exact)
		require.NoError(t, err)
		require.Equal(t, exact, u.Scheme+"://"+u.Host)
		require.NotEmpty(t, u.Hostname())
		require.NotContains(t, exact, "*")
		if !AllowsOrigin([]string{allowed}, origin) {
			return
		}
		sent, err := url.Parse(origin)
		require.NoError(t, err)
		require.Equal(t, origin, sent.Scheme+"://"+sent.Host)
		require.Equal(t, u.Scheme, sent.Scheme)
		require.True(t, sent.Hostname() == u.Hostname() && !strings.Contains(allowed, "*.") ||
			strings.HasSuffix(sent.Hostname(), "."+u.Hostname()) && strings.Contains(allowed, "*."))
		require.True(t, sent.Port() == u.Port() || strings.HasSuffix(allowed, ":*"))
	})
}

func TestCheckHost(t *testing.T) {
	for _, good := range []string{
		"*", "presence.example.com", "*.example.com", "*.lan", "lan", "my_host.example",
		"xn--caf-dma.example", "10.0.0.1",
	} {
		require.NoError(t, CheckHost(good), good)
	}
	for _, bad := range []string{
		"", ".", "*.", "a.*", "**", "*a.example", "A.example", "a.example.", "a.example:80",
		"https://a.example", "a/b", "[::1]", "*.*.example", "é.example", "a b", "-a.example", strings.Repeat("a", 64),
	} {
		require.Error(t, CheckHost(bad), bad)
	}
}

// FuzzHost checks that an allowed name has no dot, is an address, or ends in a domain that is not public.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"localhost:8080", "[::1]:1", "127.0.0.1", "a.local.", "evil.example", "com.",
		"[fe80::1%eth0]", "a:b:c", "\u212Aocalhost", "1.2.3", "*", "xn--a.internal",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !AllowsHost(nil, host) || host == "" {
			return
		}
		u, err := url.Parse("http://" + strings.ReplaceAll(host, "%", "%25") + "/")
		require.NoError(t, err)
		name := strings.ToLower(u.Hostname())
		if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
			return
		}
		labels := strings.Split(strings.TrimSuffix(name, "."), ".")
		require.Contains(t, []string{"localhost", "local", "internal"}, labels[len(labels)-1], host)
	})
}

func TestIsOriginOf(t *testing.T) {
	for want, pairs := range map[bool][][2]string{
		true: {
			{"https://chat.example", "chat.example"},
			{"https://chat.example", "Chat.Example:443"},
			{"http://chat.example", "chat.example:80"},
			{"http://chat.example:8080", "chat.example:8080"},
			{"http://[::1]:8080", "[::1]:8080"},
		},
		false: {
			{"http://chat.example:8080", "chat.example"},
			{"http://chat.example", "chat.example:443"},
			{"https://chat.example/", "chat.example"},
			{"https://a@chat.example", "chat.example"},
			{"https://evil.example", "chat.example"},
			{"app://chat.example", "chat.example"},
			{"null", "null"},
			{"", ""},
			{"https://", ""},
		},
	} {
		for _, pair := range pairs {
			require.Equal(t, want, isOriginOf(pair[0], pair[1]), "%q", pair)
		}
	}
}
