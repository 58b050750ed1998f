package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

type watchCmd struct {
	remote
	output
	Namespace string   `arg:"" help:"Name of the namespace."`
	Users     []string `arg:"" optional:"" name:"user" help:"IDs of up to 1000 users. Default: everyone who is green or yellow, or changes."`
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
		return c.FollowChanges(ctx, cmd.Namespace, follow)
	}
	if out, ok := std.Out.(*os.File); ok && !cmd.JSON && term.IsTerminal(out.Fd()) && os.Getenv("TERM") != "dumb" {
		err = showScreen(ctx, out, cmd.Namespace, changes)
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
			text := stamp(changes.AsOf) + " " + printable(p.User) + " " + string(p.Status)
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

// heard is what the screen is told about the changes.
type heard struct {
	users    []client.Presence
	complete bool      // users are all of them
	asOf     time.Time // by the server's clock
	err      error     // why the stream is interrupted; nil while it is not
}

// listen applies changes, and tells what is known after each of them, until they end.
func listen(all iter.Seq2[client.Changes, error], tell func(heard)) (err error) {
	var roster client.Roster
	var h heard
	for changes, failed := range all {
		roster.Apply(changes, failed)
		h.users, h.complete = roster.All()
		if h.err = failed; failed == nil {
			h.asOf = changes.AsOf
		}
		tell(h)
		err = failed
	}
	return err
}
