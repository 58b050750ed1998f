package cli

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

type devicesCmd struct{ oneUser }

// Run lists the devices of the user.
func (cmd *devicesCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	d, err := c.ListDevices(ctx, cmd.Namespace, cmd.User)
	if err != nil {
		return err
	}
	t := cmd.table(std, "DEVICE", "KIND", "LAST SEEN", "ACTIVITY", "STATE")
	for _, device := range d.Devices {
		state := ""
		switch {
		case device.Gone:
			state = "gone"
		case device.Live:
			state = "live"
		}
		seen := ago(device.LastSeen, d.AsOf)
		if err := t.row(device, printable(device.ID), string(device.Kind), seen, device.Activity, state); err != nil {
			return err
		}
	}
	return t.end()
}

type availabilityCmd struct {
	oneUser
	Set  string        `arg:"" default:"" enum:",away,busy,invisible,none" name:"availability" help:"What the user is from now on: away, busy or invisible; none ends it, and the note. Default: show it."`
	Note string        `placeholder:"TEXT" help:"A note that others see."`
	For  time.Duration `placeholder:"DURATION" help:"End it after this time. Default: it has no end."`
}

// Validate implements [kong.Validatable].
func (cmd *availabilityCmd) Validate() error {
	switch sets := cmd.Set != "" && cmd.Set != "none"; {
	case cmd.For < 0:
		return errors.New("--for: use a time from now on, such as 1h")
	case cmd.For > 0 && !sets && cmd.Note == "", cmd.Note != "" && cmd.Set == "none":
		return errors.New("--for and --note are for an availability that is set, such as busy")
	}
	return nil
}

// Run shows the availability, after setting it.
func (cmd *availabilityCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	a := client.UserAvailability{User: cmd.User, Note: cmd.Note, Availability: lastseen.Availability(cmd.Set)}
	if cmd.For > 0 {
		p, err := c.GetUser(ctx, cmd.Namespace, cmd.User, client.Evaluate{}) // for the time: the server's counts
		if err != nil {
			return err
		}
		a.Until = p.AsOf.Add(cmd.For)
	}
	switch {
	case cmd.Set == "none":
		a.Availability, err = "", c.DeleteAvailability(ctx, cmd.Namespace, cmd.User)
	case cmd.Set == "" && cmd.Note == "":
		a, err = c.GetAvailability(ctx, cmd.Namespace, cmd.User)
	default:
		a, err = c.SetAvailability(ctx, cmd.Namespace, a)
	}
	if err != nil {
		return err
	}
	t := cmd.table(std, "USER", "AVAILABILITY", "UNTIL", "NOTE")
	cells := []string{printable(cmd.User), string(a.Availability), stamp(a.Until), printable(a.Note)}
	return errors.Join(t.row(a, cells...), t.end())
}
