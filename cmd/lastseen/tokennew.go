package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// maxTTL is how long a token from the command line can be valid: it cannot be revoked.
const maxTTL = 7 * 24 * time.Hour

// tokenCmd is about JWTs.
type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Create a JWT for a user, to test a server with the same settings. Prints only the token."`
}

// tokenNewCmd creates a JWT. No server needs to run: a server with the same settings accepts the token.
type tokenNewCmd struct {
	User          string  `placeholder:"USER" help:"User that the token is for. Required."`
	Namespaces    *string `placeholder:"NAMESPACE,…" help:"Namespaces that the token is valid in. chat-* matches names that start with chat-, * matches all. Required, unless jwt-namespaces is set."`
	TTL           string  `default:"1h" placeholder:"DURATION" help:"How long the token is valid, from 1s to 168h (default 1h)."`
	JWTPrivateKey *string `placeholder:"FILE" help:"Private key in PEM that signs the token, if the server verifies JWTs with public keys: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA."`

	tokenSettings
}

// tokenSettings are the settings that a token usually depends on, with their own help.
type tokenSettings struct {
	Config             string `placeholder:"FILE" help:"Configuration file of the server."`
	JWTSecretFile      string `placeholder:"FILE" help:"Secret of JWTs signed with HS256."`
	JWTKeysFile        string `placeholder:"FILE" help:"Public keys that the server verifies JWTs with."`
	JWTIssuer          string `placeholder:"TEXT" help:"Issuer (iss) of the token."`
	JWTAudience        string `placeholder:"TEXT" help:"Audience (aud) of the token."`
	JWTUserClaim       string `placeholder:"NAME" help:"Claim that holds the user."`
	JWTNamespacesClaim string `placeholder:"NAME" help:"Claim that holds the namespaces."`
}

// Run prints the token.
func (cmd *tokenNewCmd) Run(ctx context.Context, std cli.Streams, loader config.Loader) error {
	c, err := loader.Reload()
	if err != nil {
		return err
	}
	token, err := cmd.newToken(ctx, c, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintln(std.Out, token)
	return nil
}

// newToken returns a token that is valid from now on.
func (cmd *tokenNewCmd) newToken(ctx context.Context, c *config.Config, now time.Time) (string, error) {
	var wrong config.Error
	if c.Access.Tokens == nil {
		wrong.Addf("no JWTs are configured: set jwt-secret-file, jwt-keys-file or jwt-jwks-url, as for the server")
		return "", &wrong
	}
	grant := cmd.grant(c, now, &wrong)
	key := cmd.privateKey(c, &wrong)
	if err := wrong.Err(); err != nil {
		return "", err
	}
	token, err := c.Access.Tokens.Sign(key, grant)
	if err != nil {
		wrong.Addf("--jwt-private-key: %v", err)
	} else if err = tryToken(ctx, c.Access, token); err != nil {
		wrong.Addf("a server with these settings would reject this token: %v", err)
	}
	return token, wrong.Err()
}

// grant returns what the token is for.
func (cmd *tokenNewCmd) grant(c *config.Config, now time.Time, wrong *config.Error) auth.Grant {
	g := auth.Grant{Issued: now, User: cmd.User}
	if err := lastseen.CheckUser(g.User); err != nil {
		wrong.Addf("--user: %v", err)
	}
	var err error
	if cmd.Namespaces != nil {
		g.Namespaces, err = config.ParseList(*cmd.Namespaces, auth.ParsePattern)
	}
	switch {
	case err != nil:
		wrong.Addf("--namespaces: %v", err)
	case cmd.Namespaces == nil && len(c.JWTNamespaces) == 0:
		wrong.Addf("--namespaces is missing: a token without namespaces grants no access")
	case len(g.Namespaces) > auth.MaxClaimed:
		wrong.Addf("--namespaces: %d are too many; the maximum is %d", len(g.Namespaces), auth.MaxClaimed)
	}
	ttl, err := lastseen.ParseConfigDuration(cmd.TTL)
	if err != nil || ttl < time.Second || ttl > maxTTL {
		wrong.Addf("--ttl: %q is not valid; use a duration from 1s to 168h", cmd.TTL)
	}
	g.Expires = now.Add(ttl)
	return g
}

// privateKey returns the key that signs the token; nil if the secret does.
func (cmd *tokenNewCmd) privateKey(c *config.Config, wrong *config.Error) crypto.Signer {
	if cmd.JWTPrivateKey == nil {
		if c.Access.Tokens.Secret == nil {
			wrong.Addf("--jwt-private-key is missing: the server verifies JWTs with %s, "+
				"so signing requires a private key", c.TokenSources()[0])
		}
		return nil
	}
	content, err := config.ReadText(*cmd.JWTPrivateKey)
	if err == nil {
		var key crypto.Signer
		if key, err = auth.ParsePrivateKey(content); err == nil {
			return key
		}
	}
	wrong.Addf("--jwt-private-key: %v", err)
	return nil
}

// tryToken returns the error with which a server would reject a token. It does not fetch keys that an issuer
// publishes.
func tryToken(ctx context.Context, access auth.Config, token string) error {
	if access.Tokens.JWKS != "" {
		return nil
	}
	authenticator, err := auth.New(access, auth.Options{})
	if err != nil {
		return err
	}
	defer authenticator.Close()
	if _, err = authenticator.AuthenticateToken(ctx, token); errors.Is(err, auth.ErrUnauthenticated) {
		return err
	}
	return nil
}
