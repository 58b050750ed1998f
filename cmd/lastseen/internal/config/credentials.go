package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lastseen/lastseen/api/auth"
)

// Settings that several messages name.
const (
	secretFile    = "jwt-secret-file"
	keysFile      = "jwt-keys-file"
	jwksURL       = "jwt-jwks-url"
	anonymousRead = "anonymous-read"
)

// checkCredentials reports what is wrong with API keys and JWTs, and sets Access.
func (c *Config) checkCredentials(e *Error) {
	c.Access = auth.Config{Keys: c.authKeys(e), AnonymousRead: c.AnonymousRead, Tokens: c.tokens(e)}
	c.checkOpen(e)
}

// secured reports whether requests need credentials.
func (c *Config) secured() bool { return len(c.keys) > 0 || len(c.TokenSources()) > 0 }

// Callers describes who has access, for people.
func (c *Config) Callers() string {
	if !c.secured() {
		return "anyone, with full access"
	}
	var all []string
	if n := len(c.keys); n > 0 {
		all = append(all, fmt.Sprintf("callers with an API key (%d)", n))
	}
	if c.Access.Tokens != nil {
		all = append(all, "users with a JWT of "+c.JWTIssuer)
	}
	if len(c.AnonymousRead) > 0 {
		all = append(all, "anyone to read "+c.get(anonymousRead).display())
	}
	return strings.Join(all, ", ")
}

// TokenSources returns the settings for verifying JWTs that are set. A valid configuration has at most one.
func (c *Config) TokenSources() []string {
	return slices.DeleteFunc([]string{secretFile, keysFile, jwksURL}, func(name string) bool { return !c.isSet(name) })
}

// checkOpen reports settings that give full access to anyone without saying so.
func (c *Config) checkOpen(e *Error) {
	if !c.valid("auth", "listen", anonymousRead) {
		return
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	switch {
	case !c.secured() && c.isSet(anonymousRead):
		e.Addf("%s: without %s and JWTs anyone has full access; configure API keys or JWTs, or remove this setting",
			c.describe(anonymousRead), keysSection)
	case c.secured() && c.Auth == AuthNone:
		e.Addf("%s, but %s or JWTs are configured: with auth none, anyone has full access", c.describe("auth"),
			keysSection)
	case !c.secured() && c.Auth == AuthAuto && !isLocal(host):
		e.Addf("%s: other machines can reach this address, so it requires %s or JWTs. Create a key "+
			"(lastseen key new), listen on 127.0.0.1, or give full access to anyone (--auth=none, LASTSEEN_AUTH=none)",
			c.describe("listen"), keysSection)
	}
}

// place returns a setting and its source without its value: some users set the secret itself instead of the name of
// its file.
func (c *Config) place(name string) string { return fmt.Sprintf("%s (%s)", name, c.Source(name)) }

// tokens returns which JWTs are accepted, or nil.
func (c *Config) tokens(e *Error) *auth.Tokens {
	sources := c.TokenSources()
	switch {
	case len(sources) == 0:
		c.checkNoTokens(e)
		return nil
	case len(sources) > 1:
		e.Addf("%s and %s: set only one of them to verify JWTs", c.place(sources[0]), c.place(sources[1]))
		return nil
	}
	for _, name := range []string{"jwt-issuer", "jwt-audience"} {
		if !c.isSet(name) {
			e.Addf("%s: %s is missing: it is required to reject JWTs issued for other services",
				c.place(sources[0]), name)
		}
	}
	t := &auth.Tokens{
		JWKS: c.JWTJwksURL, Issuer: c.JWTIssuer, Audience: c.JWTAudience, Leeway: c.JWTLeeway,
		UserClaim: c.JWTUserClaim, NamespacesClaim: c.JWTNamespacesClaim, Namespaces: c.JWTNamespaces,
	}
	if c.valid(sources[0]) {
		if err := c.readKeys(t); err != nil { // without the name of the file; see place
			e.Addf("%s: %v", c.get(sources[0]).prefix, err)
		}
	}
	return t
}

// checkNoTokens reports settings about JWTs that have no effect. Those with a default are allowed: a printed
// configuration holds them.
func (c *Config) checkNoTokens(e *Error) {
	for _, d := range Definitions() {
		if strings.HasPrefix(d.Name, "jwt-") && d.Default == "" && c.isSet(d.Name) {
			e.Addf("%s: this setting requires %s, %s or %s", c.describe(d.Name), secretFile, keysFile, jwksURL)
		}
	}
}

// readKeys reads the file for verifying JWTs, if one is set.
func (c *Config) readKeys(t *auth.Tokens) error {
	name := cmp.Or(c.JWTSecretFile, c.JWTKeysFile)
	if name == "" {
		return nil
	}
	content, err := ReadFile(name)
	switch {
	case err != nil:
	case name == c.JWTKeysFile:
		t.Keys, err = auth.ParsePublicKeys(withoutMark(content))
	default:
		t.Secret = trimText(content)
		err = checkSecret(t.Secret)
	}
	return err
}

// checkSecret returns an error for an unsafe secret. Public keys are not accepted as one: anyone who has them could
// forge tokens of any user.
func checkSecret(secret []byte) error {
	trimmed := bytes.TrimSpace(secret)
	switch {
	case len(secret) < auth.MinSecretLen:
		return fmt.Errorf("the secret has %d bytes: use at least %d; openssl rand -base64 48 generates one",
			len(secret), auth.MinSecretLen)
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN ")):
		return fmt.Errorf("the file holds PEM: set public keys with %s", keysFile)
	case bytes.HasPrefix(trimmed, []byte("{")) && json.Valid(trimmed):
		return fmt.Errorf("the file holds JSON: set a key set with %s", jwksURL)
	}
	return nil
}

// trimText returns text without what editors and echo add: a byte order mark, and a newline. Binary content, which can
// have such bytes, stays unchanged.
func trimText(content []byte) []byte {
	text := withoutMark(bytes.TrimRight(content, "\r\n"))
	if !utf8.Valid(text) || bytes.ContainsFunc(text, unicode.IsControl) {
		return content
	}
	return slices.Clip(text)
}
