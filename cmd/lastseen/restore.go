package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/filestore"
)

// restoreCmd puts a backup in the place of the data file.
type restoreCmd struct {
	config.FileSettings
	config.StoreSettings
	File  string `arg:"" placeholder:"FILE" help:"Backup to restore. It stays as it is."`
	Force bool   `help:"Replace the data file if it exists: what is only there is lost."`
}

// Run restores the backup, or changes nothing.
func (r *restoreCmd) Run(std cli.Streams, loader config.Loader) error {
	path, err := loader.Text("store")
	if err != nil {
		return err
	}
	if config.IsStoreURL(path) {
		return errors.New("the store is Redis: restore the backup of Redis")
	}
	size, err := filestore.Restore(r.File, path, r.Force)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists; move it away, or replace it with --force", path)
	case errors.Is(err, filestore.ErrLocked):
		return fmt.Errorf("%s: %w; stop the server first", path, err)
	case err != nil:
		return fmt.Errorf("nothing was restored from %s: %w", r.File, err)
	}
	_, err = fmt.Fprintf(std.Out, "%s: %d bytes, verified\n", path, size)
	return err
}
