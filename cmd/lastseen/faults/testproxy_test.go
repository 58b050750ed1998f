//go:build faults

package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"
)

// proxy is between servers and a Redis, and spoils what passes through it.
type proxy struct{ *toxiproxy.Proxy }

// startProxy starts a proxy to an address, until the test ends.
func startProxy(t testing.TB, upstream string) proxy {
	t.Helper()
	owner := &toxiproxy.ApiServer{
		Collection: toxiproxy.NewProxyCollection(), Metrics: toxiproxy.NewMetricsContainer(nil),
	}
	setNew(&owner.Logger) // the zero logger is silent
	p := toxiproxy.NewProxy(owner, "redis", "127.0.0.1:0", upstream)
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return proxy{p}
}

func setNew[T any](p **T) { *p = new(T) }

// url returns the address as a store URL.
func (p proxy) url() string { return "redis://" + p.Listen }

// spoil adds a toxic, such as timeout, to what the servers receive ("downstream") or send ("upstream"). The attributes
// are JSON.
func (p proxy) spoil(t testing.TB, toxic, stream, attributes string) {
	t.Helper()
	_, err := p.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":%s}`, toxic, stream, attributes)))
	require.NoError(t, err)
}

// heal removes all toxics. Connections that lost data do not recover.
func (p proxy) heal(t testing.TB) {
	t.Helper()
	p.Toxics.ResetToxics(t.Context())
}
