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
	d, err := c.ListDevices(ctx, string(cmd.Namespace), string(cmd.User))
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
		cells := []string{word(device.ID), printable(string(device.Kind)), seen, printable(device.Activity), state}
		if err := t.row(device, cells...); err != nil {
			return err
		}
	}
	return t.end()
}

type availabilityCmd struct {
	oneUser
	Set  string        `arg:"" default:"" enum:",away,busy,invisible,none" name:"availability" help:"What the user is from now on: away, busy or invisible; none ends it, and the note. Default: show it."`
	Note *string       `placeholder:"TEXT" help:"A note that others see. It replaces what was set before, as an availability does."`
	For  time.Duration `placeholder:"DURATION" help:"End it after this time. Default: it has no end."`
}

// Validate implements [kong.Validatable].
func (cmd *availabilityCmd) Validate() error {
	switch {
	case cmd.For < 0:
		return errors.New("--for: use a time from now on, such as 1h")
	case cmd.For > 0 && !cmd.sets(), cmd.Note != nil && cmd.Set == "none":
		return errors.New("--for and --note are for an availability that is set, such as busy")
	}
	return nil
}

// sets reports whether the command sets something.
func (cmd *availabilityCmd) sets() bool { return cmd.Set != "" && cmd.Set != "none" || cmd.Note != nil }

// Run shows the availability, after setting it.
func (cmd *availabilityCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	a := client.UserAvailability{User: string(cmd.User)}
	switch {
	case cmd.Set == "none":
		err = c.DeleteAvailability(ctx, string(cmd.Namespace), string(cmd.User))
	case !cmd.sets():
		a, err = c.GetAvailability(ctx, string(cmd.Namespace), string(cmd.User))
	default:
		a.Availability, a.For = lastseen.Availability(cmd.Set), cmd.For
		if cmd.Note != nil {
			a.Note = *cmd.Note
		}
		a, err = c.SetAvailability(ctx, string(cmd.Namespace), a)
	}
	if err != nil {
		return err
	}
	t := cmd.table(std, "USER", "AVAILABILITY", "UNTIL", "NOTE")
	cells := []string{word(string(cmd.User)), printable(string(a.Availability)), stamp(a.Until), printable(a.Note)}
	return errors.Join(t.row(a, cells...), t.end())
}
