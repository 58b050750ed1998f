package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/filestore"
)

// backupCmd saves the data of a running server with a file store.
type backupCmd struct {
	config.FileSettings
	config.AdminSettings
	File  string `arg:"" placeholder:"FILE" help:"File to write. It is a data file: see --store."`
	Force bool   `help:"Replace the file if it exists."`
}

// Run writes the file. It has its name only when it is complete, verified and on the disk.
func (b *backupCmd) Run(ctx context.Context, std cli.Streams, loader config.Loader) error {
	listen, err := loader.Text("admin-listen")
	if err != nil {
		return err
	}
	if err := b.mayWrite(); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(b.File), filepath.Base(b.File)+".*.new") // readable for its owner only
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // unless it has its final name
	defer next.Close()
	if err := fetchBackup(ctx, listen, next); err != nil {
		return err
	}
	info, err := next.Stat()
	if err == nil {
		err = errors.Join(filestore.Verify(next.Name()), next.Sync())
	}
	if err != nil {
		return fmt.Errorf("the backup is not complete: %w", err)
	}
	if err := errors.Join(b.mayWrite(), next.Close()); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(next.Name(), b.File), filestore.SyncDir(b.File)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s: %d bytes, verified\n", b.File, info.Size())
	return err
}

// mayWrite returns an error if the file exists, unless it can be replaced. The data file of a running server cannot:
// the server would go on with a file that has no name.
func (b *backupCmd) mayWrite() error {
	switch _, err := os.Lstat(b.File); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !b.Force:
		return fmt.Errorf("%s exists; choose another file, or replace it with --force", b.File)
	case filestore.InUse(b.File):
		return fmt.Errorf("%s is the data file of a running server; choose another file", b.File)
	}
	return nil
}

// backupSilence is how long to wait for the next part of a backup.
const backupSilence = 60 * time.Second

// fetchBackup copies a backup of the server whose admin listener has an address.
func fetchBackup(ctx context.Context, listen string, to io.Writer) error {
	if listen == "" {
		return errors.New("admin-listen is off: a backup needs the admin address of the running server")
	}
	address, err := healthAddress(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(backupSilence, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/backup", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{}} // without the proxies of the environment
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%w; is the server running, with this --admin-listen?", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refused(address, response)
	}
	for err == nil {
		silence.Reset(backupSilence)
		_, err = io.CopyN(to, response.Body, 4<<10)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the server ended the backup early: %w; its log has the reason", err)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// refused returns an error with what the server at an address responded.
func refused(address string, response *http.Response) error {
	reason, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // the status says enough
	return fmt.Errorf("%s returned %s: %s", address, response.Status, strings.TrimSpace(string(reason)))
}
