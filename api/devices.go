package api

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// The activities of a device.
const (
	activityActive = "active"
	activityIdle   = "idle"
)

// parseActivity reads the activity of a device that was seen at a time, and returns since when the device is idle: 0 if
// it is active, as without an activity.
func parseActivity(activity string, at lastseen.Instant) (idle lastseen.Instant, err *problem.Error) {
	switch activity {
	case "", activityActive:
		return 0, nil
	case activityIdle:
		return at, nil
	default:
		return 0, problem.Errorf(problem.InvalidDevice, "Invalid activity %.40q: use active or idle.", activity)
	}
}
