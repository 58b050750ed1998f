package cli

import (
	"bufio"
	"context"
	"errors"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

type exportCmd struct {
	remote
	Namespace namespace `arg:"" help:"Name of the namespace."`
}

// Run prints all users, as they are when each of them is read, and who changes meanwhile once more. Who was never seen,
// or was deleted, is not printed.
func (cmd *exportCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(std.Out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := false
	for changes, err := range c.FollowChanges(ctx, string(cmd.Namespace), client.Follow{}) {
		if err == nil && changes.Reset && begun {
			err = errors.New("changes were lost meanwhile; export again")
		}
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		begun = true
		for _, p := range changes.Users {
			if p.LastSeen.IsZero() {
				continue
			}
			if err := writeJSON(out, exported{p.User, lastseen.InstantOf(p.LastSeen).String(), p.Left}); err != nil {
				return err
			}
		}
		if !changes.More {
			break
		}
	}
	return out.Flush()
}

// exported is a user in a file.
type exported struct {
	User     string `json:"user"`
	LastSeen string `json:"last_seen"`
	Left     bool   `json:"left,omitempty"`
}
