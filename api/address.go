package api

import (
	"net"
	"net/netip"

	"github.com/labstack/echo/v4"
)

// addressOf returns how to find a client's address: that of the connection, and behind proxies the last one in
// X-Forwarded-For that none of them has. Proxies are those that are configured and nobody else: also an address
// of this machine or of its network can be a client's, who then chooses what is in that header.
func addressOf(proxies []netip.Prefix) echo.IPExtractor {
	if len(proxies) == 0 {
		return echo.ExtractIPDirect()
	}
	trusted := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range proxies {
		mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
		trusted = append(trusted, echo.TrustIPRange(&net.IPNet{IP: p.Addr().AsSlice(), Mask: mask}))
	}
	return echo.ExtractIPFromXFFHeader(trusted...)
}
