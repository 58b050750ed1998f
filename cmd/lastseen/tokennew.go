package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
)

// Bounds of how long a token from the command line is valid: it cannot be taken back.
const (
	minTTL = time.Second
	maxTTL = 7 * 24 * time.Hour
)

// tokenCmd is about JWTs.
type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Create a JWT for a user, to test a server with the same settings. Prints only the token."`
}

// tokenNewCmd makes a JWT. A server need not run: it takes the token when it has the same settings.
type tokenNewCmd struct {
	User          string `placeholder:"USER" help:"User that the token is for. Required."`
	Namespaces    string `placeholder:"NAMESPACE,…" help:"Namespaces that the token is valid in. chat-* matches names that start with chat-, * matches all. Required, unless jwt-namespaces is set."`
	TTL           string `placeholder:"DURATION" help:"How long the token is valid, from 1s to 168h (default 1h)."`
	JWTPrivateKey string `placeholder:"FILE" help:"Private key in PEM that signs the token, if the server verifies JWTs with public keys: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA."`

	Config             string `placeholder:"FILE" help:"Configuration file of the server."`
	JWTSecretFile      string `placeholder:"FILE" help:"Secret of JWTs signed with HS256."`
	JWTKeysFile        string `placeholder:"FILE" help:"Public keys that the server verifies JWTs with."`
	JWTIssuer          string `placeholder:"TEXT" help:"Issuer (iss) of the token."`
	JWTAudience        string `placeholder:"TEXT" help:"Audience (aud) of the token."`
	JWTUserClaim       string `placeholder:"NAME" help:"Claim that holds the user."`
	JWTNamespacesClaim string `placeholder:"NAME" help:"Claim that holds the namespaces."`
}

// Run prints the token.
func (*tokenNewCmd) Run(ctx context.Context, std streams, from sources) error {
	c, err := from.reload()
	if err != nil {
		return err
	}
	token, err := c.newToken(ctx, from, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintln(std.out, token)
	return nil
}

// newToken returns a token that is valid from now on, as the flags of the command say.
func (c *config) newToken(ctx context.Context, from sources, now time.Time) (string, error) {
	var p problems
	if c.access.Tokens == nil {
		p.addf("no JWTs are configured: set %s, %s or %s, as for the server", secretFile, keysFile, jwksURL)
		return "", p.err()
	}
	grant := c.grant(from, now, &p)
	key := c.privateKey(from, &p)
	if err := p.err(); err != nil {
		return "", err
	}
	token, err := c.access.Tokens.Sign(key, grant)
	if err != nil {
		p.addf("--jwt-private-key: %v", err)
	} else if err = c.tryToken(ctx, token); err != nil {
		p.addf("a server with these settings would reject this token: %v", err)
	}
	return token, p.err()
}

// grant returns what the token is for.
func (c *config) grant(from sources, now time.Time, p *problems) auth.Grant {
	g := auth.Grant{Issued: now}
	user, given := from.flags["user"]
	if !given {
		p.addf("--user is missing")
	} else if err := lastseen.CheckUser(user); err != nil {
		p.addf("--user: %v", err)
	}
	g.User = user
	names, given := from.flags["namespaces"]
	switch err := each(names, &g.Namespaces, auth.ParsePattern); {
	case !given && len(c.JWTNamespaces) == 0:
		p.addf("--namespaces is missing: a token without namespaces grants no access")
	case !given:
		g.Namespaces = nil
	case err != nil:
		p.addf("--namespaces: %v; use %s", err, (*patterns)(nil).takes())
	case len(g.Namespaces) > auth.MaxClaimed:
		p.addf("--namespaces: %d are too many; the maximum is %d", len(g.Namespaces), auth.MaxClaimed)
	}
	ttl, err := lastseen.ParseConfigDuration(from.flagOr("ttl", "1h"))
	switch {
	case err != nil:
		p.addf("--ttl: %v", err)
	case ttl < minTTL || ttl > maxTTL:
		p.addf("--ttl: %s is out of range; use a duration from 1s to 168h", from.flags["ttl"])
	}
	g.Expires = now.Add(ttl)
	return g
}

// privateKey returns the key that the token is signed with; nil if it is the secret.
func (c *config) privateKey(from sources, p *problems) crypto.PrivateKey {
	file, given := from.flags["jwt-private-key"]
	switch {
	case !given && c.access.Tokens.Secret == nil:
		p.addf("--jwt-private-key is missing: the server verifies JWTs with %s, so signing requires a private key", c.tokenSources()[0])
		return nil
	case !given:
		return nil
	}
	content, err := readFile(file)
	if err == nil {
		var key crypto.Signer
		if key, err = auth.ParsePrivateKey(content); err == nil {
			return key
		}
	}
	p.addf("--jwt-private-key: %v", err)
	return nil
}

// tryToken returns the error with which a server would refuse a token. Keys that an issuer publishes are not fetched.
func (c *config) tryToken(ctx context.Context, token string) error {
	if c.access.Tokens.JWKS != "" {
		return nil
	}
	guard, err := auth.New(c.access, auth.Options{})
	if err != nil {
		return err
	}
	defer guard.Close()
	if _, err = guard.AuthenticateToken(ctx, token); errors.Is(err, auth.ErrUnauthenticated) {
		return err
	}
	return nil
}
