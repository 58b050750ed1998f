package api

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/lastseen/lastseen/api/limit"
)

// BenchmarkBeforeTheHandler measures what every request pays for limits, proxies and CORS, on a route that does not use
// the store.
func BenchmarkBeforeTheHandler(b *testing.B) {
	limits := func(c *Config) {
		c.Limits = func() limit.Limits { return limit.Limits{Caller: 1_000_000_000} }
	}
	for _, c := range []struct {
		name   string
		set    func(*Config)
		header http.Header
	}{
		{"nothing", func(*Config) {}, nil},
		{"limits", limits, nil},
		{"limits behind a proxy", func(c *Config) {
			limits(c)
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, http.Header{"X-Forwarded-For": {"198.51.100.1, 203.0.113.7"}}},
		{"CORS", allowing(app), http.Header{"Origin": {app}}},
		{"CORS, asked by no browser", allowing(app), nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			config := Config{Settings: func(string) Settings { return Settings{} }}
			c.set(&config)
			handler, w := New(config), &sink{header: http.Header{}}
			request, err := http.NewRequest(http.MethodGet, "/v1/namespaces/chat", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			request.Host = "127.0.0.1:8080"
			request.RemoteAddr = "192.0.2.1:4711"
			if c.header != nil {
				request.Header = c.header
			}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				handler.ServeHTTP(w, request)
			}
			if w.status != http.StatusOK {
				b.Fatal(w.status)
			}
		})
	}
}
