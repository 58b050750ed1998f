package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/charmbracelet/x/term"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

type watchCmd struct {
	inNamespace
	Users []string `arg:"" optional:"" name:"user" help:"IDs of up to 1000 users. Default: everyone who is green or yellow, or changes."`
}

// Validate implements [kong.Validatable].
func (cmd *watchCmd) Validate() error {
	if len(cmd.Users) > maxLookup {
		return fmt.Errorf("use up to %d users, or none for everyone", maxLookup)
	}
	return checkUsers(cmd.Users)
}

// Run follows the users until the context ends.
func (cmd *watchCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	follow := client.Follow{Users: cmd.Users}
	if len(cmd.Users) == 0 {
		follow = client.Follow{Status: []lastseen.Status{lastseen.Green, lastseen.Yellow}}
	}
	changes := func(ctx context.Context) iter.Seq2[client.Changes, error] {
		return c.FollowChanges(ctx, string(cmd.Namespace), follow)
	}
	if out, ok := std.Out.(*os.File); ok && !cmd.JSON && term.IsTerminal(out.Fd()) && os.Getenv("TERM") != "dumb" {
		err = showScreen(ctx, out, string(cmd.Namespace), changes)
	} else {
		err = cmd.lines(ctx, std, changes(ctx))
	}
	if ctx.Err() != nil { // by Ctrl-C, which is how it ends
		return nil
	}
	return err
}

// reset is the JSON object that says to forget what was known before.
type reset struct {
	Reset bool `json:"reset"`
}

// lines prints a line for each change.
func (cmd *watchCmd) lines(ctx context.Context, std Streams, all iter.Seq2[client.Changes, error]) (err error) {
	for changes, failed := range all {
		if err = failed; err != nil {
			if problem, ok := errors.AsType[*client.Error](err); ctx.Err() == nil && (!ok || !problem.Permanent()) {
				fmt.Fprintf(std.Err, "lastseen: interrupted: %s\n", Message(err))
			}
			continue
		}
		if changes.Reset {
			err = cmd.print(std, reset{true}, "%s begins", stamp(changes.AsOf))
		}
		for _, p := range changes.Users {
			text := stamp(changes.AsOf) + " " + word(p.User) + " " + printable(string(p.Status))
			if more := details(p); more != "" {
				text += " (" + more + ")"
			}
			err = errors.Join(err, cmd.print(std, p, "%s", text))
		}
		if err != nil {
			return err
		}
	}
	return err
}
