package config

import (
	"fmt"
	"net/url"
	"os"
	"slices"
)

// warnTightThresholds warns of thresholds at which a single lost ping changes a status.
func (c *Config) warnTightThresholds() (warnings []string) {
	all := []*Values{&c.Values}
	for _, name := range c.Names() {
		if ns := c.namespaces[name]; ns.isSet("green") || ns.isSet("ping-interval") {
			all = append(all, ns)
		}
	}
	for _, s := range all {
		if s.valid("green", "ping-interval") && s.Green < 2*s.PingInterval {
			warnings = append(warnings, fmt.Sprintf(
				"%s and %s: green is less than two ping intervals, so one lost ping turns a user yellow",
				s.describe("green"), s.describe("ping-interval")))
		}
	}
	return warnings
}

// warnExposed warns of settings, and of a data file, that give access to more people than intended.
func (c *Config) warnExposed() (warnings []string) {
	u, err := url.Parse(c.JWTJwksURL)
	if c.valid(jwksURL) && err == nil && u.Scheme == "http" && !isLocal(u.Hostname()) {
		warnings = append(warnings, c.describe(jwksURL)+
			": without https, an attacker on the network can replace the keys and forge tokens of any user")
	}
	for _, s := range []struct {
		name   string
		values []string
	}{{"cors-origins", c.CORSOrigins}, {"allowed-hosts", c.AllowedHosts}} {
		if !c.secured() && c.valid(s.name) && slices.Contains(s.values, "*") {
			warnings = append(warnings, c.describe(s.name)+": without keys and JWTs, any web page opened in a browser "+
				"that reaches this server has full access")
		}
	}
	return append(warnings, c.warnReadableFile()...)
}

// warnReadableFile warns of a data file that other users of the machine can read. Files that lastseen creates are
// readable for their owner only.
func (c *Config) warnReadableFile() []string {
	if c.OnRedis() || !c.valid("store") {
		return nil
	}
	info, err := os.Stat(c.Store)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: other users of this machine can read it (mode %04o); run chmod 600 %s",
		c.describe("store"), info.Mode().Perm(), c.Store)}
}
