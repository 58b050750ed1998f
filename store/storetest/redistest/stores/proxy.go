package stores

import (
	"context"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"
)

// StartProxy starts a proxy in front of a server, whose toxics spoil the connection.
func StartProxy(t testing.TB, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := callWithZero(toxiproxy.NewServer, toxiproxy.NewMetricsContainer(nil))
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy
}

// callWithZero calls a function with the zero value of a type that need not be imported: a logger that writes nothing.
func callWithZero[A, Z, R any](f func(A, Z) R, a A) R {
	var z Z
	return f(a, z)
}

// Spoil adds a toxic until the returned function is called.
func Spoil(t testing.TB, proxy *toxiproxy.Proxy, toxic string) (heal func()) {
	t.Helper()
	added, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(t, err)
	return func() { require.NoError(t, proxy.Toxics.RemoveToxic(context.Background(), added.Name)) }
}
