package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/redisstore"
)

// copyCmd copies everything from one store to another.
type copyCmd struct {
	config.FileSettings
	FromConfig string `placeholder:"FILE" help:"YAML file with the settings of a Redis to copy from. Default: --config."`
	From       string `placeholder:"STORE" help:"What to copy: a file, the URL of a Redis, or the admin address of a running server with a file, such as http://127.0.0.1:8081. Default: the store of --from-config."`
	To         string `placeholder:"STORE" help:"Where to: a file, or the URL of a Redis. Default: the store of --config, or LASTSEEN_STORE."`
	Replace    bool   `help:"Replace what is there: users whom the source does not have are deleted."`
	Compare    bool   `help:"Write nothing: print what differs."`
}

// Validate implements [kong.Validatable].
func (cmd *copyCmd) Validate() error {
	if cmd.From == "" && cmd.FromConfig == "" {
		return errors.New("--from: name what to copy")
	}
	if isServer(cmd.To) {
		return errors.New("--to: name a file or the URL of a Redis")
	}
	return nil
}

// Run copies: the target has what the source has, or the error says what it has.
func (cmd *copyCmd) Run(ctx context.Context, std cli.Streams, loader config.Loader) error {
	from, err := place(loader, cmd.From, cmd.FromConfig)
	if err != nil {
		return err
	}
	to, err := place(loader, cmd.To, "")
	if err != nil {
		return err
	}
	if from.Store == to.Store && (!to.OnRedis() || from.RedisPrefix == to.RedisPrefix) {
		return fmt.Errorf("%s is both the source and the target", shown(to.Store))
	}
	c := &copying{std: std}
	source, release, err := c.read(ctx, from)
	if err != nil {
		return err
	}
	defer release()
	switch {
	case cmd.Compare:
		return c.compare(ctx, source, to)
	case to.OnRedis():
		again := isServer(from.Store) // the source goes on
		err = c.toRedis(ctx, source, to, cmd.Replace, again)
	default:
		err = c.toFile(source, to.Store, cmd.Replace)
	}
	if err != nil {
		return err
	}
	users, _ := source.Size()
	namespaces, _ := source.Names()
	_, err = fmt.Fprintf(std.Out, "users %d, namespaces %d, changed %d, verified\n", users, len(namespaces), c.changed)
	return err
}

// place returns the settings of a store, given its name, or that of a file with settings, or both. A file with settings
// counts more than the environment, which may name another store.
func place(loader config.Loader, name, file string) (*config.Config, error) {
	if name != "" && (isServer(name) || !config.IsStoreURL(name)) {
		c := &config.Config{}
		c.Store = name
		return c, nil
	}
	flags := map[string]string{}
	if text, ok := loader.Flags["config"]; ok {
		flags["config"] = text
	}
	if file != "" {
		flags["config"], loader.Environ = file, nil
	}
	if name != "" {
		flags["store"] = name
	}
	loader.Flags = flags
	return loader.Reload() // without the certificate
}

// isServer reports whether a store is the admin address of a server.
func isServer(name string) bool { return strings.HasPrefix(name, "http://") }

// shown returns the name of a store without passwords.
func shown(name string) string {
	if config.IsStoreURL(name) && !isServer(name) {
		return redisstore.Redact(name)
	}
	return name
}

// copying is a copy in progress.
type copying struct {
	std     cli.Streams
	changed int
}

// did prints what was done, and how long that took.
func (c *copying) did(what, where string, began time.Time) {
	fmt.Fprintf(c.std.Err, "%s %s: %s\n", what, shown(where), time.Since(began).Round(time.Millisecond))
}

// read reads a store. A file stays locked until release is called.
func (c *copying) read(ctx context.Context, from *config.Config) (x *memstore.Tables, release func(), err error) {
	began := time.Now()
	switch release = func() {}; {
	case isServer(from.Store):
		x, err = readServer(ctx, strings.TrimPrefix(from.Store, "http://"))
	case from.OnRedis():
		var s *redisstore.Store
		if s, err = c.openRedis(from); err != nil {
			return nil, nil, err
		}
		defer s.Close() //nolint:errcheck // it was only read
		x, err = c.readRedis(ctx, s)
	default:
		if x, release, err = filestore.Read(from.Store); !errors.Is(err, fs.ErrNotExist) {
			err = openError(from.Store, err)
		}
	}
	if err == nil {
		c.did("read", from.Store, began)
	}
	return x, release, err
}

// readServer reads the backup of a server.
func readServer(ctx context.Context, address string) (*memstore.Tables, error) {
	file, err := os.CreateTemp("", "lastseen-*.db")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := fetchBackup(ctx, strings.TrimSuffix(address, "/"), file); err != nil {
		return nil, err
	}
	x, release, err := filestore.Read(file.Name())
	if err == nil {
		release()
	}
	return x, err
}

// copyTimeout is for each command to Redis.
const copyTimeout = 10 * time.Second

func (c *copying) openRedis(of *config.Config) (*redisstore.Store, error) {
	logging.Disable() // the client's own log
	o := of.RedisOptions()
	o.Logger = newLogger("text", c.std.Err, new(slog.LevelVar))
	o.Timeout, o.DialTimeout, o.Wait, o.MaxLag = copyTimeout, copyTimeout, 0, 0
	return redisstore.Open(o)
}

// readRedis reads all that is kept in a Redis.
func (c *copying) readRedis(ctx context.Context, s *redisstore.Store) (*memstore.Tables, error) {
	x, progress, users := memstore.NewTables(memstore.Options{}), cli.NewProgress(c.std.Err), 0
	defer progress.Clear()
	return x, x.Fill(func(log memstore.Log) error {
		return redisstore.Export(ctx, s, func(namespace, user string, k store.Kept) error {
			log.In(namespace)
			if user != "" {
				memstore.Keep(log, namespace, user, k)
				users++
				progress.Show(users)
			}
			return nil
		})
	})
}

// toFile writes a file.
func (c *copying) toFile(source *memstore.Tables, path string, replace bool) error {
	began := time.Now()
	err := filestore.Write(path, source, replace)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists; replace it with --replace", path)
	case err != nil:
		return openError(path, err)
	}
	c.did("wrote and verified", path, began)
	users, _ := source.Size()
	c.changed = int(users)
	return nil
}

// toRedis writes the differences to a Redis. If again is true, another copy follows, and the mark of an unfinished copy
// stays.
func (c *copying) toRedis(
	ctx context.Context, source *memstore.Tables, to *config.Config, replace, again bool,
) (err error) {
	s, err := c.openRedis(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	used, err := redisstore.Used(ctx, s)
	if err != nil {
		return err
	}
	begun, err := redisstore.Importing(ctx, s)
	if err != nil {
		return err
	}
	if used && !begun && !replace {
		return fmt.Errorf("there are users in %s: with --replace, those whom the source does not have are deleted",
			shown(to.Store))
	}
	began := time.Now()
	err = redisstore.SetImporting(ctx, s, true)
	if err == nil {
		err = c.write(ctx, s, source)
	}
	if err != nil {
		return fmt.Errorf("%w; the copy is not complete: run it again", err)
	}
	c.did("wrote and verified", to.Store, began)
	if again {
		return nil
	}
	return redisstore.SetImporting(ctx, s, false)
}

// write makes a Redis keep what tables keep. What it has of namespaces that the source does not have goes first, and
// what is left there of those that do not exist.
func (c *copying) write(ctx context.Context, s *redisstore.Store, source *memstore.Tables) error {
	there, err := redisstore.Names(ctx, s)
	if err != nil {
		return err
	}
	listed, unlisted := source.Names()
	gone := slices.Concat(store.Without(there, listed), store.Without(listed, there), unlisted)
	for _, name := range gone {
		if err := redisstore.Clear(ctx, s, name); err != nil {
			return err
		}
	}
	progress := cli.NewProgress(c.std.Err)
	defer progress.Clear()
	w := importing{store: s, unlisted: unlisted}
	export := func(keep func(namespace, user string, k store.Kept) error) error {
		return redisstore.Export(ctx, s, keep)
	}
	_, missing, err := source.Compare(export, func(name string, change store.KeptChange) error {
		c.changed++
		progress.Show(c.changed)
		if err := w.to(ctx, name); err != nil {
			return err
		}
		return w.Change(ctx, change)
	})
	for _, name := range missing { // also those without users
		if err == nil {
			err = w.to(ctx, name)
		}
	}
	if err == nil {
		err = w.to(ctx, "")
	}
	return err
}

// importing writes to one namespace after the other.
type importing struct {
	*redisstore.Importer // nil for none
	store                *redisstore.Store
	name                 string
	unlisted             []string // namespaces that do not exist
}

// to begins with a namespace, unless it is the one that is written to; "" for none.
func (w *importing) to(ctx context.Context, name string) (err error) {
	if name == w.name {
		return nil
	}
	if w.name != "" {
		if err := w.Close(ctx); err != nil {
			return err
		}
	}
	if w.name = name; name != "" {
		w.Importer, err = redisstore.NewImporter(ctx, w.store, name, !slices.Contains(w.unlisted, name))
	}
	return err
}

// compare prints what differs.
func (c *copying) compare(ctx context.Context, source *memstore.Tables, to *config.Config) error {
	target, release, err := c.read(ctx, to)
	if err != nil {
		return err
	}
	defer release()
	if err := c.verify(ctx, source, target, to.OnRedis()); err != nil {
		return err
	}
	users, _ := source.Size()
	namespaces, _ := source.Names()
	_, err = fmt.Fprintf(c.std.Out, "the same: users %d, namespaces %d\n", users, len(namespaces))
	return err
}

// maxDifferences is how many users are named who differ.
const maxDifferences = 20

// verify returns an error if tables differ, and says who does. What is hidden in namespaces that do not exist is not
// read from a Redis.
func (c *copying) verify(ctx context.Context, source, target *memstore.Tables, onRedis bool) error {
	differ := 0
	_, unlisted := source.Names()
	surplus, missing, err := source.Compare(target.Export, func(name string, change store.KeptChange) error {
		if onRedis && slices.Contains(unlisted, name) {
			return nil
		}
		if differ++; differ <= maxDifferences {
			fmt.Fprintf(c.std.Err, "lastseen: %s, %q: %+v at the source, %+v at the target\n", name, change.User,
				change.Now.State, change.Was.State)
		}
		return ctx.Err()
	})
	if namespaces := len(surplus) + len(missing); err == nil && differ+namespaces > 0 {
		err = fmt.Errorf("differ: users %d, namespaces %d", differ, namespaces)
	}
	return err
}
