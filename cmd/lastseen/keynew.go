package main

import (
	"fmt"

	"github.com/lastseen/lastseen/api/auth"
)

// keyCmd is about API keys.
type keyCmd struct {
	New keyNewCmd `cmd:"" help:"Create an API key. The first line is the key, which is shown only once. The lines below it are for the configuration file and hold no secret."`
}

// keyNewCmd makes an API key. A server need not run: it knows the key when its file holds the hash.
type keyNewCmd struct {
	Name       string `placeholder:"NAME" help:"Name of the key. It identifies the caller in the log and for rate limits (default backend)."`
	Scopes     string `placeholder:"SCOPE,…" help:"Permissions of the key: ping, read, admin (default ping,read)."`
	Namespaces string `placeholder:"NAMESPACE,…" help:"Namespaces of the key. chat-* matches names that start with chat-, * matches all (default *)."`
}

// Run prints the key, and below it the lines for a configuration file.
func (*keyNewCmd) Run(std streams, from sources) error {
	k := auth.Key{Name: from.flagOr("name", "backend")}
	var p problems
	if !validKeyName.MatchString(k.Name) {
		p.addf("--name: %s is not a valid key name; use %s", name(k.Name), takesKeyName)
	}
	if err := each(from.flagOr("scopes", "ping,read"), &k.Scopes, auth.ParseScope); err != nil {
		p.addf("--scopes: %v; use a comma-separated list of ping, read and admin", err)
	}
	if err := each(from.flagOr("namespaces", "*"), &k.Namespaces, auth.ParsePattern); err != nil {
		p.addf("--namespaces: %v; use %s", err, (*patterns)(nil).takes())
	}
	if err := p.err(); err != nil {
		return err
	}
	key, hash := auth.NewKey()
	k.Hash = hash
	fmt.Fprintf(std.out, "%s\n\n%s:\n", key, keysKey)
	printKey(std.out, k, "")
	return nil
}
