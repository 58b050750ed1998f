package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// inNamespace is what a command is about.
type inNamespace struct {
	remote
	output
	Namespace namespace `arg:"" help:"Name of the namespace."`
}

// seen limits users by when they were seen.
type seen struct {
	From time.Time `placeholder:"TIME" help:"Only users seen at this time or later, such as 2026-11-29T08:00:00Z."`
	To   time.Time `placeholder:"TIME" help:"Only users seen at this time or before."`
}

type listCmd struct {
	inNamespace
	seen
	Status []lastseen.Status `enum:"green,yellow,grey" placeholder:"STATUS" help:"Only users with one of these: green, yellow, grey."`
	Oldest bool              `help:"Those seen last come last."`
	Limit  int               `default:"50" placeholder:"N" help:"Most users (default 50)."`
	All    bool              `help:"All users, instead of a limit."`
}

// Validate implements [kong.Validatable].
func (cmd *listCmd) Validate() error {
	if cmd.Limit < 1 || cmd.Limit > 1_000_000 {
		return errors.New("--limit: use 1 to 1000000, or --all")
	}
	return nil
}

// Run lists the users.
func (cmd *listCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	list := client.List{Status: cmd.Status, From: cmd.From, To: cmd.To, OldestFirst: cmd.Oldest}
	if !cmd.All {
		list.Limit = min(cmd.Limit+1, maxLookup) // to know whether there are more
	}
	t, n := cmd.userTable(std), 0
	for p, err := range c.Users(ctx, string(cmd.Namespace), list) {
		if err != nil {
			return t.fail(err)
		}
		if n++; n > cmd.Limit && !cmd.All {
			fmt.Fprintln(std.Err, "lastseen: there are more users; use --limit or --all")
			break
		}
		if err := t.user(p); err != nil {
			return err
		}
	}
	return t.end()
}

type countsCmd struct {
	inNamespace
	seen
}

// Run counts the users.
func (cmd *countsCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	n, err := c.CountUsers(ctx, string(cmd.Namespace), client.List{From: cmd.From, To: cmd.To})
	if err != nil {
		return err
	}
	return cmd.print(std, n, "green %d, yellow %d, grey %d, total %d", n.Green, n.Yellow, n.Grey, n.Total)
}

type namespacesCmd struct {
	remote
	output
}

// Run lists the namespaces.
func (cmd *namespacesCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	t := cmd.table(std, "NAMESPACE", "LAST PING")
	for n, err := range c.Namespaces(ctx) {
		if err != nil {
			return t.fail(err)
		}
		if err := t.row(n, printable(n.Namespace), stamp(n.LastPing)); err != nil {
			return err
		}
	}
	return t.end()
}

type deleteNamespaceCmd struct {
	inNamespace
	Confirm string `required:"" placeholder:"NAMESPACE" help:"The name once more: what is deleted cannot be restored."`
}

// Validate implements [kong.Validatable].
func (cmd *deleteNamespaceCmd) Validate() error {
	if cmd.Confirm != string(cmd.Namespace) {
		return errors.New("--confirm: repeat the name of the namespace")
	}
	return nil
}

// Run deletes the users of the namespace.
func (cmd *deleteNamespaceCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	if err := c.DeleteNamespace(ctx, string(cmd.Namespace)); err != nil {
		return err
	}
	return cmd.print(std, forgotten{string(cmd.Namespace), "", true}, "%s: deleted", string(cmd.Namespace))
}
