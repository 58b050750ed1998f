package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Run the service (the default)."`
	Config  configCmd  `cmd:"" help:"Print the effective settings, each with where it comes from, or what is wrong with them."`
	Health  healthCmd  `cmd:"" help:"Ask a running service whether it is alive; for container health checks."`
	Key     keyCmd     `cmd:"" help:"Make API keys."`
	Version versionCmd `cmd:"" help:"Print the version."`
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
		kong.Description("A presence service: who is here, and who was here recently."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.FlagNamer(kebab),
		kong.KindMapper(reflect.String, note), kong.KindMapper(reflect.Int, note), kong.KindMapper(reflect.Int64, note),
		kong.PostBuild(withoutDefaults),
		kong.ValueFormatter(explain),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std, given),
	)
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

const settingsHelp = "Each setting is a flag, an environment variable, and a name in the configuration file, " +
	"where namespaces can have settings of their own. A flag wins over the environment, and that over the file. " +
	"Durations have a unit: 500ms, 90s, 5m, 1h30m."
