package limit

import (
	"net/netip"
	"testing"
	"time"
)

// BenchmarkAllow measures what rate limiting costs a request.
func BenchmarkAllow(b *testing.B) {
	numbered := func(n int) Key {
		return ByAddress(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
	}
	for _, c := range []struct {
		name   string
		caller func(n int) Key
	}{
		{"IPv4", func(int) Key { return ByAddress(netip.AddrFrom4([4]byte{203, 0, 113, 7})) }},
		{"IPv6", func(int) Key { return ByAddress(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})) }},
		{"key", func(int) Key { return ByAPIKey("chat-backend") }},
		{"user", func(int) Key { return ByUser("https://login.example.com", "2f1e7c1e-4b0c-4c1e-9d0e-1c2d3e4f5a6b") }},
		{"10,000 callers", func(n int) Key { return numbered(n % 10_000) }},
		{"somebody new", numbered},
	} {
		buckets, limits := New(DefaultSize, time.Now), Limits{Caller: 5000, User: 20}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				buckets.Allow(c.caller(n), limits)
			}
		})
	}
	b.Run("at once", func(b *testing.B) {
		buckets, limits := New(DefaultSize, time.Now), Limits{Caller: 5000}
		b.RunParallel(func(p *testing.PB) {
			for n := 0; p.Next(); n++ {
				buckets.Allow(numbered(n%10_000), limits)
			}
		})
	})
}
