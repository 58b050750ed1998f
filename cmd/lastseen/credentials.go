package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lastseen/lastseen/api/auth"
)

// Settings that say by what the signature of a JWT is checked, those that go with them, and those that name
// no credentials but are about who may do what.
const (
	secretFile    = "jwt-secret-file"
	keysFile      = "jwt-keys-file"
	jwksURL       = "jwt-jwks-url"
	issuer        = "jwt-issuer"
	audience      = "jwt-audience"
	leeway        = "jwt-leeway"
	anonymousRead = "anonymous-read"
)

// credentials finds what is wrong with who may do what, and takes over what is right.
func (c *config) credentials(p *problems) {
	c.checkKeys(p)
	c.access = auth.Config{AnonymousRead: c.AnonymousRead, Tokens: c.tokens(p)}
	for _, name := range c.keyNames() {
		c.access.Keys = append(c.access.Keys, c.keys[name].Key)
	}
	c.checkOpen(p)
	if c.fine(leeway) && time.Duration(c.JWTLeeway) > auth.MaxLeeway {
		p.addf("%s: the maximum leeway is 5m", c.say(leeway))
	}
}

// secured reports whether callers have to prove who they are.
func (c *config) secured() bool { return len(c.keys) > 0 || len(c.tokenSources()) > 0 }

// callers tells who may do something, for people.
func (c *config) callers() string {
	if !c.secured() {
		return "anyone, with full access"
	}
	var all []string
	if n := len(c.keys); n > 0 {
		all = append(all, fmt.Sprintf("callers with an API key (%d)", n))
	}
	if c.access.Tokens != nil {
		all = append(all, "users with a JWT of "+c.JWTIssuer)
	}
	if len(c.AnonymousRead) > 0 {
		all = append(all, "anyone to read "+c.chosen[anonymousRead].shown)
	}
	return strings.Join(all, ", ")
}

// tokenSources returns the settings that are set of those by which JWTs are checked.
func (c *config) tokenSources() (set []string) {
	for _, name := range []string{secretFile, keysFile, jwksURL} {
		if c.own(name) {
			set = append(set, name)
		}
	}
	return set
}

// checkOpen finds settings by which anyone may do everything though nobody says that it is meant.
func (c *config) checkOpen(p *problems) {
	if !c.fine("auth", "listen", anonymousRead) {
		return
	}
	switch {
	case !c.secured() && c.own(anonymousRead):
		p.addf("%s: without %s and JWTs anyone has full access; configure API keys or JWTs, or remove this setting", c.say(anonymousRead), keysKey)
	case c.secured() && c.Auth == authNone:
		p.addf("%s, but %s is configured: with auth none, anyone has full access", c.say("auth"), c.sayCredentials())
	case !c.secured() && c.Auth == authAuto && !c.Listen.private():
		p.addf("%s: other machines can reach this address, so it requires %s or JWTs. Create a key (lastseen key new), listen on "+
			"127.0.0.1, or give full access to anyone (--auth=none, LASTSEEN_AUTH=none)",
			c.say("listen"), keysKey)
	}
}

// sayCredentials names one of the credentials that are configured.
func (c *config) sayCredentials() string {
	if names := c.keyNames(); len(names) > 0 {
		return fmt.Sprintf("%s.%s (%s)", keysKey, names[0], c.keys[names[0]].origin)
	}
	return c.place(c.tokenSources()[0])
}

// place names a setting and where it stands, and not its value: some take the name of a file of secrets for the
// place of the secret itself.
func (c *config) place(name string) string {
	return fmt.Sprintf("%s (%s)", name, c.chosen[name].origin)
}

// tokens returns which JWTs are taken; nil if none are.
func (c *config) tokens(p *problems) *auth.Tokens {
	sources := c.tokenSources()
	switch len(sources) {
	case 0:
		c.checkNoTokens(p)
		return nil
	case 1:
	default:
		p.addf("%s and %s: set only one of them to verify JWTs", c.place(sources[0]), c.place(sources[1]))
		return nil
	}
	for _, name := range []string{issuer, audience} {
		if !c.own(name) {
			p.addf("%s: %s is missing: it is required to reject JWTs issued for other services", c.place(sources[0]), name)
		}
	}
	t := &auth.Tokens{
		JWKS: string(c.JWTJwksURL), Issuer: c.JWTIssuer, Audience: c.JWTAudience, Leeway: time.Duration(c.JWTLeeway),
		UserClaim: c.JWTUserClaim, NamespacesClaim: c.JWTNamespacesClaim, Namespaces: c.JWTNamespaces,
	}
	if c.fine(sources[0]) {
		c.readKeys(t, sources[0], p)
	}
	return t
}

// checkNoTokens finds settings about JWTs without one that says how they are checked: they would do nothing. Those
// with a default may stand as they do in what is printed.
func (c *config) checkNoTokens(p *problems) {
	for _, d := range definitions() {
		if strings.HasPrefix(d.name, "jwt-") && d.standard == "" && c.own(d.name) {
			p.addf("%s: this setting requires %s, %s or %s", c.say(d.name), secretFile, keysFile, jwksURL)
			return
		}
	}
}

// readKeys reads the file by which JWTs are checked. Messages show neither what is in it nor its name; see place.
func (c *config) readKeys(t *auth.Tokens, source string, p *problems) {
	files := map[string]string{secretFile: c.JWTSecretFile, keysFile: c.JWTKeysFile}
	file, ok := files[source]
	if !ok {
		return
	}
	content, err := readFile(file)
	switch {
	case err != nil:
	case source == keysFile:
		t.Keys, err = auth.ParsePublicKeys(content)
	default:
		t.Secret = withoutNewline(content)
		err = checkSecret(t.Secret)
	}
	if err != nil {
		p.addf("%s: %v", c.chosen[source].origin.begin(source), err)
	}
}

// checkSecret tells what is wrong with a secret. Public keys are not taken for one: whoever knows them could make
// tokens of any user.
func checkSecret(secret []byte) error {
	trimmed := bytes.TrimSpace(secret)
	switch {
	case len(secret) < auth.MinSecretLen:
		return fmt.Errorf("the secret has %d bytes: use at least %d; openssl rand -base64 48 generates one", len(secret), auth.MinSecretLen)
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN ")):
		return fmt.Errorf("the file holds PEM: set public keys with %s", keysFile)
	case bytes.HasPrefix(trimmed, []byte("{")) && json.Valid(trimmed):
		return fmt.Errorf("the file holds JSON: set a key set with %s", jwksURL)
	}
	return nil
}

// withoutNewline returns text without the newline with which editors and echo end it. What is no text may
// well end with such a byte.
func withoutNewline(content []byte) []byte {
	text := bytes.TrimRight(content, "\r\n")
	if !utf8.Valid(text) || bytes.ContainsFunc(text, unicode.IsControl) {
		return content
	}
	return slices.Clip(text)
}
