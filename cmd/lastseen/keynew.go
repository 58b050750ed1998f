package main

import (
	"fmt"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// keyCmd is about API keys.
type keyCmd struct {
	New keyNewCmd `cmd:"" help:"Create an API key. The first line is the key, which is shown only once. The lines below it are for the configuration file and hold no secret."`
}

// keyNewCmd creates an API key. No server needs to run: a server accepts the key when its file holds the hash.
type keyNewCmd struct {
	Name       string `default:"backend" placeholder:"NAME" help:"Name of the key. It identifies the caller in the log and for rate limits (default backend)."`
	Scopes     string `default:"ping,read" placeholder:"SCOPE,…" help:"Permissions of the key: ping, read, admin (default ping,read)."`
	Namespaces string `default:"*" placeholder:"NAMESPACE,…" help:"Namespaces of the key. chat-* matches names that start with chat-, * matches all (default *)."`
}

// Run prints the key, and below it the lines for a configuration file.
func (cmd *keyNewCmd) Run(std cli.Streams) error {
	var wrong config.Error
	if err := config.CheckKeyName(cmd.Name); err != nil {
		wrong.Addf("--name: %v", err)
	}
	scopes, err := config.ParseList(cmd.Scopes, auth.ParseScope)
	if err != nil {
		wrong.Addf("--scopes: %v; use ping, read and admin", err)
	}
	namespaces, err := config.ParseList(cmd.Namespaces, auth.ParsePattern)
	if err != nil {
		wrong.Addf("--namespaces: %v", err)
	}
	if err := wrong.Err(); err != nil {
		return err
	}
	key, hash := auth.NewKey()
	fmt.Fprintf(std.Out, "%s\n\nkeys:\n", key)
	config.PrintKey(std.Out, auth.Key{Name: cmd.Name, Hash: hash, Scopes: scopes, Namespaces: namespaces}, "")
	return nil
}
