package main

import (
	"fmt"
	"os"
	"slices"
)

// exposed warns of settings, and of a data file, that give away more than people may know.
func (c *config) exposed() (warnings []string) {
	if c.fine(jwksURL) && c.JWTJwksURL.exposed() {
		warnings = append(warnings, c.say(jwksURL)+": without https, an attacker on the network can replace the keys and forge tokens of any user")
	}
	for _, s := range []struct {
		name   string
		values []string
	}{{"cors-origins", c.CORSOrigins}, {"allowed-hosts", c.AllowedHosts}} {
		if !c.secured() && c.fine(s.name) && slices.Contains(s.values, "*") {
			warnings = append(warnings, c.say(s.name)+": without keys and JWTs, any web page opened in a browser that reaches this server has full access")
		}
	}
	return append(warnings, c.readableFile()...)
}

// readableFile warns of a data file that other users of the machine can read. One that lastseen creates can be read by its
// owner only.
func (c *config) readableFile() []string {
	if c.onRedis() || !c.fine("store") {
		return nil
	}
	info, err := os.Stat(c.Store)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: other users of this machine can read it (mode %04o); run chmod 600 %s", c.say("store"), info.Mode().Perm(), c.Store)}
}
