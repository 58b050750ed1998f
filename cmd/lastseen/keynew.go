package main

import (
	"fmt"

	"github.com/lastseen/lastseen/api/access"
)

// keyCmd is about API keys.
type keyCmd struct {
	New keyNewCmd `cmd:"" help:"Make an API key: the first line is the key, which is shown only here; below it is what the configuration file takes, which does not tell the key."`
}

// keyNewCmd makes an API key. A server need not run: it knows the key when its file holds the hash.
type keyNewCmd struct {
	Name       string `placeholder:"NAME" help:"Who has the key, for people and for limits (default backend)."`
	Scopes     string `placeholder:"SCOPE,…" help:"What it may do, of ping, read and admin (default ping,read)."`
	Namespaces string `placeholder:"NAMESPACE,…" help:"Where: chat-* is all that begin with chat-, and * is all (default *)."`
}

// Run prints the key, and below it the lines for a configuration file.
func (*keyNewCmd) Run(std streams, from sources) error {
	k := access.Key{Name: from.flagOr("name", "backend")}
	var p problems
	if !validKeyName.MatchString(k.Name) {
		p.addf("--name: the name %s is none for a key; it takes %s", name(k.Name), takesKeyName)
	}
	if err := each(from.flagOr("scopes", "ping,read"), &k.Scopes, access.ParseScope); err != nil {
		p.addf("--scopes: %v; it takes some of ping, read and admin, with commas between", err)
	}
	if err := each(from.flagOr("namespaces", "*"), &k.Namespaces, access.ParsePattern); err != nil {
		p.addf("--namespaces: %v; it takes %s", err, (*patterns)(nil).takes())
	}
	if err := p.err(); err != nil {
		return err
	}
	key, hash := access.NewKey()
	k.Hash = hash
	fmt.Fprintf(std.out, "%s\n\n%s:\n", key, keysKey)
	printKey(std.out, k, "")
	return nil
}
