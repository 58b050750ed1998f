package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/redisstore"
)

// commands is the command line.
type commands struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Run the service (the default)."`
	Init    initCmd    `cmd:"" help:"Write a first configuration file, with an API key."`
	Config  configCmd  `cmd:"" help:"Print the effective settings and where each comes from, or all errors in them."`
	Health  healthCmd  `cmd:"" help:"Check that a running service is alive. For container health checks."`
	Backup  backupCmd  `cmd:"" help:"Save the data of a running service with a file store."`
	Restore restoreCmd `cmd:"" help:"Put a backup in the place of a file store's data. The server must not be running."`
	Copy    copyCmd    `cmd:"" help:"Copy everything from one store to another. Their servers must not be running."`
	Key     keyCmd     `cmd:"" help:"Create API keys."`
	Token   tokenCmd   `cmd:"" help:"Create JWTs for testing."`
	Version versionCmd `cmd:"" help:"Print the version."`

	Completion completionCmd `cmd:"" help:"Print the script with which a shell completes commands and flags."`

	cli.Commands

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

// exitCode ends run from inside the parser, after it has printed the help.
type exitCode int

// newCommandLine returns the parser of the command line. It fills the fields of commands, except those of settings:
// their flags go to a [config.Loader] as text.
func newCommandLine(ctx context.Context, std cli.Streams) (*kong.Kong, error) {
	loader := config.Loader{Flags: map[string]string{}, Environ: os.Environ()}
	return kong.New(&commands{},
		kong.Name("lastseen"),
		kong.Description("A presence service: tracks who is online and who was online recently."),
		kong.Vars{"version": versionLine()},
		kong.Writers(std.Out, std.Err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.PostBuild(func(k *kong.Kong) error { return kong.Visit(k.Model, captureSettings(loader.Flags)) }),
		kong.ExplicitGroups([]kong.Group{{Key: "server", Title: "Commands for a running server:"}}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std, loader),
	)
}

// captureSettings returns a visitor that makes each flag with the name of a setting store its text. Whether the text is
// valid, and what applies without the flag, is resolved with the other sources; the help shows it.
func captureSettings(texts map[string]string) kong.Visitor {
	capture := kong.MapperFunc(func(c *kong.DecodeContext, _ reflect.Value) error {
		var text string
		err := c.Scan.PopValueInto("value", &text)
		texts[c.Value.Name] = text
		return err
	})
	return func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			if d, ok := config.Find(flag.Name); ok {
				flag.Target = reflect.New(reflect.TypeFor[string]()).Elem()
				flag.Mapper, flag.HasDefault = capture, false
				flag.Help += " " + d.Note()
			}
		}
		return next(nil)
	}
}

// unknownCommand returns the error for a first argument that does not name a command. Kong knows only that the
// default command, serve, takes no arguments. Other errors are returned unchanged.
func unknownCommand(err error, args []string, known []*kong.Node) error {
	if len(args) == 0 || err.Error() != "unexpected argument "+args[0] {
		return err
	}
	word := args[0]
	var names []string
	for _, command := range known {
		names = append(names, command.Name)
	}
	hint := config.Suggest(word, names)
	switch {
	case config.IsStoreURL(word):
		word, hint = redisstore.Redact(word), ", did you mean --store?"
	case word == "help":
		hint = ", did you mean --help?"
	case hint == "":
		hint = "; the commands are " + strings.Join(names, ", ") + ": see lastseen --help"
	}
	return fmt.Errorf("unknown command %.64q%s", word, hint)
}

// Help returns what the help of serve adds to its flags.
func (*serveCmd) Help() string { return settingsHelp }

// Help returns what the help of config adds to its flags.
func (*configCmd) Help() string { return settingsHelp }

const settingsHelp = "Each setting is a flag, an environment variable and a name in the configuration file. " +
	"In the file, a namespace can have its own values. Flags override the environment, which overrides the file. " +
	"Durations need a unit: 500ms, 90s, 5m, 1h30m."

// configCmd prints the effective configuration. It has the flags of serve.
type configCmd struct {
	config.Settings
	Check bool `help:"Print only what is wrong, or that nothing is."`
}

// Run prints the configuration, or fails with everything that is wrong with it.
func (cmd *configCmd) Run(std cli.Streams, loader config.Loader) error {
	c, err := loader.Load()
	for _, warning := range c.Warnings {
		fmt.Fprintf(std.Err, "lastseen: warning: %s\n", warning)
	}
	if err != nil {
		return err
	}
	if cmd.Check {
		_, err := fmt.Fprintln(std.Out, "ok")
		return err
	}
	return c.Print(std.Out, version().Version)
}
