package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// users are those that a command is about.
type users struct {
	inNamespace
	Users []string `arg:"" name:"user" help:"IDs of users."`
}

// Validate implements [kong.Validatable].
func (u *users) Validate() error { return checkUsers(u.Users) }

// device is what a ping or a leave says about a device.
type device struct {
	Device string `placeholder:"ID" help:"ID of the device. Default: none."`
	Kind   string `default:"" enum:",web,mobile,desktop,service,other" placeholder:"KIND" help:"Kind of the device: web, mobile, desktop, service or other."`
}

var errNoDevice = errors.New("--kind and --activity need --device")

// events returns an event of each user.
func (d device) events(users []string, e client.Event) []client.Event {
	if d.Device != "" {
		e.Device = &client.Device{ID: d.Device, Kind: lastseen.DeviceKind(d.Kind)}
	}
	events := make([]client.Event, len(users))
	for i, user := range users {
		events[i] = e
		events[i].User = user
	}
	return events
}

// recorded is the result of a ping or a leave.
type recorded struct {
	Recorded int `json:"recorded"`
}

type pingCmd struct {
	users
	device
	Activity string `default:"" enum:",active,idle" placeholder:"ACTIVITY" help:"active or idle, for a device."`
}

// Validate implements [kong.Validatable].
func (cmd *pingCmd) Validate() error {
	if cmd.Device == "" && cmd.Kind+cmd.Activity != "" {
		return errNoDevice
	}
	return cmd.users.Validate()
}

// Run records the pings, all or none.
func (cmd *pingCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	n, err := c.RecordPings(ctx, string(cmd.Namespace), cmd.events(cmd.Users, client.Event{Activity: cmd.Activity}))
	if err != nil {
		return err
	}
	return cmd.print(std, recorded{n}, "%d recorded", n)
}

type leaveCmd struct {
	users
	device
	After time.Duration `placeholder:"DURATION" help:"Wait so long; a ping in the meantime makes the leave void. At most 1m."`
}

// Validate implements [kong.Validatable].
func (cmd *leaveCmd) Validate() error {
	switch {
	case cmd.Device == "" && cmd.Kind != "":
		return errNoDevice
	case cmd.After < 0 || cmd.After > time.Minute:
		return errors.New("--after: use a time up to 1m")
	}
	return cmd.users.Validate()
}

// Run records the leaves, all or none.
func (cmd *leaveCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	n, err := c.RecordLeaves(ctx, string(cmd.Namespace), cmd.events(cmd.Users, client.Event{After: cmd.After}))
	if err != nil {
		return err
	}
	return cmd.print(std, recorded{n}, "%d recorded", n)
}

type getCmd struct{ users }

// maxLookup is how many users a lookup has at most.
const maxLookup = 1000

// Run looks the users up.
func (cmd *getCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	t := cmd.userTable(std)
	for some := range slices.Chunk(cmd.Users, maxLookup) {
		list, err := c.LookupUsers(ctx, string(cmd.Namespace), some, client.Evaluate{})
		if err != nil {
			return t.fail(err)
		}
		for _, p := range list.Users {
			if err := t.user(p); err != nil {
				return err
			}
		}
	}
	return t.end()
}

// oneUser is whom a command is about.
type oneUser struct {
	inNamespace
	User userID `arg:"" help:"ID of the user."`
}

type forgetCmd struct{ oneUser }

// forgotten is the result of deleting something.
type forgotten struct {
	Namespace string `json:"namespace"`
	User      string `json:"user,omitempty"`
	Deleted   bool   `json:"deleted"`
}

// Run deletes the user.
func (cmd *forgetCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	namespace, user := string(cmd.Namespace), string(cmd.User)
	if err := c.DeleteUser(ctx, namespace, user); err != nil {
		return err
	}
	return cmd.print(std, forgotten{namespace, user, true}, "%s: deleted", word(user))
}
