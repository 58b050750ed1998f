package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// initCmd writes a first configuration file.
type initCmd struct {
	File string `arg:"" default:"lastseen.yaml" help:"File to write (default lastseen.yaml). It must not exist."`
}

const initialSettings = `# Settings of lastseen. docs/settings.md has all of them. Start it with
#
#     lastseen --config %s

listen: 127.0.0.1:8080
store: lastseen.db

keys:
`

// Run writes the file, and prints the key whose hash is in it.
func (cmd *initCmd) Run(std cli.Streams) error {
	scopes, err := config.ParseList("ping,read", auth.ParseScope)
	if err != nil {
		return err
	}
	namespaces, err := config.ParseList("*", auth.ParsePattern)
	if err != nil {
		return err
	}
	key, hash := auth.NewKey()
	var b strings.Builder
	fmt.Fprintf(&b, initialSettings, cmd.File)
	config.PrintKey(&b, auth.Key{Name: "backend", Hash: hash, Scopes: scopes, Namespaces: namespaces}, "")
	f, err := os.OpenFile(cmd.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; choose another file", cmd.File)
	}
	if err != nil {
		return err
	}
	if _, err = f.WriteString(b.String()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	fmt.Fprintf(std.Err, "wrote %s; this is its key, which is shown only once:\n", cmd.File)
	_, err = fmt.Fprintln(std.Out, key)
	return err
}
