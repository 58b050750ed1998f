package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lastseen/lastseen/store/redisstore"
)

// commands is the command line.
type commands struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Run the service (the default)."`
	Config  configCmd  `cmd:"" help:"Print the effective settings and where each comes from, or all errors in them."`
	Health  healthCmd  `cmd:"" help:"Check that a running service is alive. For container health checks."`
	Key     keyCmd     `cmd:"" help:"Create API keys."`
	Token   tokenCmd   `cmd:"" help:"Create JWTs for testing."`
	Version versionCmd `cmd:"" help:"Print the version."`

	ShowVersion versionFlag `name:"version" help:"Print the version."`
}

// versionFlag prints the version instead of running a command.
type versionFlag bool

// BeforeReset runs as soon as the flag is read, before anything else of the command line is checked.
func (versionFlag) BeforeReset(app *kong.Kong, std streams) error {
	if err := (versionCmd{}).Run(std); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

// exitCode ends run from inside the parser, after it has printed the help.
type exitCode int

// newCommandLine returns the parser of the command line. It takes only the texts of flags, into a
// [sources]: choosing between them, environment and file, and reading values, is done there for all alike.
func newCommandLine(ctx context.Context, std streams) (*kong.Kong, error) {
	given := sources{flags: map[string]string{}, environ: os.Environ()}
	note := kong.MapperFunc(func(c *kong.DecodeContext, _ reflect.Value) error {
		var text string
		if err := c.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		given.flags[c.Value.Name] = text
		return nil
	})
	return kong.New(&commands{},
		kong.Name("lastseen"),
		kong.Description("A presence service: tracks who is online and who was online recently."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.FlagNamer(kebab),
		kong.KindMapper(reflect.String, note), kong.KindMapper(reflect.Int, note), kong.KindMapper(reflect.Int64, note),
		kong.KindMapper(reflect.Slice, note), // as a whole: kong would split it and keep the last item
		kong.PostBuild(withoutDefaults),
		kong.ValueFormatter(explain),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std, given),
	)
}

// maxQuoted is how many bytes of an unknown command an error repeats.
const maxQuoted = 64

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
	hint := suggest(word, names)
	switch {
	case isStoreURL(word):
		word, hint = redisstore.Redact(word), ", did you mean --store?"
	case word == "help":
		hint = ", did you mean --help?"
	case hint == "":
		last := len(names) - 1
		hint = "; the commands are " + strings.Join(names[:last], ", ") + " and " + names[last] + ": see lastseen --help"
	}
	return fmt.Errorf("unknown command %q%s", word[:min(len(word), maxQuoted)], hint)
}

// withoutDefaults keeps kong from taking a default for something that was given.
func withoutDefaults(k *kong.Kong) error {
	return kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			flag.HasDefault = false
		}
		return next(nil)
	})
}

// explain is a flag's help, with its default and environment variable.
func explain(v *kong.Value) string {
	d, ok := find(definitions(), v.Name)
	if !ok {
		return v.Help
	}
	var more []string
	if d.high > 0 {
		more = append(more, fmt.Sprintf("%d to %d", d.low, d.high))
	}
	if d.standard != "" {
		more = append(more, "default "+d.standard)
	}
	return v.Help + " (" + strings.Join(append(more, d.env()), ", ") + ")"
}

// Help is what the help of serve says beside its flags.
func (*serveCmd) Help() string { return settingsHelp }

// Help is what the help of config says beside its flags.
func (*configCmd) Help() string { return settingsHelp }

const settingsHelp = "Each setting is a flag, an environment variable and a name in the configuration file. " +
	"In the file, a namespace can have its own values. Flags override the environment, which overrides the file. " +
	"Durations need a unit: 500ms, 90s, 5m, 1h30m."
