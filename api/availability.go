package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// availabilityBody is the JSON of a user's availability.
type availabilityBody struct {
	// The user's availability. Null or omitted for a note alone, or for nothing.
	Availability string `json:"availability" extensions:"x-nullable" validate:"optional"`
	// A note of at most 140 characters, without control characters, line breaks and bidirectional overrides.
	Note string `json:"note" maxLength:"140" extensions:"x-nullable" validate:"optional"`
	// How long it lasts, from 1 ms to 10 years: `90s`, `1h30m` or a number of seconds. Without `for` and `until`, it
	// has no end.
	For *request.Scalar `json:"for" swaggertype:"string" extensions:"x-nullable" validate:"optional"`
	// When it ends, in place of `for`: a time in the future, in RFC 3339 or Unix seconds.
	Until *request.Scalar `json:"until" swaggertype:"string" extensions:"x-nullable" validate:"optional"`
} // @name AvailabilityRequest

// availabilityResponse is a user's availability, in a response to the user.
type availabilityResponse struct {
	User string `json:"user" minLength:"1" maxLength:"256"`
	// The user's availability. Null for nothing.
	Availability *string `json:"availability" extensions:"x-nullable"`
	// The user's note. It is text, never HTML. Null for none.
	Note *string `json:"note" extensions:"x-nullable"`
	// When it ends. Null if it has no end.
	Until request.Timestamp `json:"until" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
} // @name UserAvailability

// @ID setAvailability
// @Summary Set a user's availability
// @Description Replaces the availability: `away`, `busy` or `invisible`, a note, or both. It lasts until its end, until
// @Description it is replaced, or until the user is deleted. It is shown with the user's presence and does not change the
// @Description status.
// @Description
// @Description `invisible` is not shown to others: the user leaves at this moment. Until it ends, the user's pings, leaves
// @Description and connections change nothing that others see. The availability before stays shown, as after a leave.
// @Description Where several servers use one Redis, the first such requests in a namespace can wait for up to 5 seconds.
// @Description
// @Description The last request counts. Requires the scope `ping` or the user's own token.
// @Param body body availabilityBody true "The new availability."
// @Success 200 {object} availabilityResponse "The availability now."
// @Router /v1/namespaces/{namespace}/users/{user}/availability [put]
func (s *server) putAvailability(c echo.Context, _ request.Query, namespace, user string) error {
	var body availabilityBody
	if err := s.readBody(c, request.Form{Max: oneForm.Max}, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	availability, err := body.state(now)
	if err != nil {
		return err
	}
	if err := s.setAvailability(ctx, namespace, user, availability); err != nil {
		return err
	}
	return request.Respond(c, showAvailability(user, availability))
}

// @ID getAvailability
// @Summary Get a user's availability
// @Description Returns the availability, also `invisible`. Everything is null if the user has set none, or if it has
// @Description ended. Requires the scope `ping`, for API keys also `read`, or the user's own token.
// @Success 200 {object} availabilityResponse "The availability now."
// @Router /v1/namespaces/{namespace}/users/{user}/availability [get]
func (s *server) getAvailability(c echo.Context, _ request.Query, namespace, user string) error {
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	availability, err := s.Store.ReadAvailability(ctx, namespace, user, now)
	if err != nil {
		return err
	}
	return request.Respond(c, showAvailability(user, availability.At(now)))
}

// @ID deleteAvailability
// @Summary Clear a user's availability
// @Description Deletes the availability and the note. An invisible user becomes visible with the next ping. Deleting
// @Description nothing is not an error. Requires the scope `ping` or the user's own token.
// @Success 204 "Deleted."
// @Router /v1/namespaces/{namespace}/users/{user}/availability [delete]
func (s *server) deleteAvailability(c echo.Context, _ request.Query, namespace, user string) error {
	return respondNothing(c, s.setAvailability(c.Request().Context(), namespace, user, lastseen.AvailabilityState{}))
}

// state validates a body that arrived now, and returns its availability.
func (b availabilityBody) state(now lastseen.Instant) (availability lastseen.AvailabilityState, err error) {
	if availability.Availability, err = lastseen.ParseAvailability(b.Availability); err != nil {
		return availability, problem.From(problem.InvalidAvailability, err)
	}
	if err := lastseen.CheckNote(b.Note); err != nil {
		return availability, problem.From(problem.InvalidNote, err)
	}
	availability.Note = b.Note
	if availability.Until, err = b.end(now); err != nil {
		return availability, err
	}
	if availability.Until != 0 && availability.Availability == "" && availability.Note == "" {
		return availability, problem.New(problem.InvalidAvailability,
			"for and until are the end of an availability or of a note: send one of these, too.")
	}
	return availability, nil
}

// end returns when the availability of a body ends; 0 if it has no end.
func (b availabilityBody) end(now lastseen.Instant) (lastseen.Instant, error) {
	switch {
	case b.For != nil && b.Until != nil:
		return 0, problem.New(problem.InvalidAvailability, "for and until exclude each other: send one of them.")
	case b.For != nil:
		d, err := lastseen.ParseDuration(string(*b.For))
		if err != nil {
			return 0, problem.Errorf(problem.InvalidDuration, "for: %v.", err)
		}
		return min(now.Add(d), lastseen.MaxInstant), nil
	case b.Until != nil:
		until, err := lastseen.ParseTime(string(*b.Until))
		switch {
		case err != nil:
			return 0, problem.Errorf(problem.InvalidTime, "until: %v.", err)
		case until <= now:
			return 0, problem.Errorf(problem.InvalidTime,
				"until (%s) is not later than the server's clock (%s).", until, now)
		}
		return until, nil
	}
	return 0, nil
}

// setAvailability records the availability of a user.
func (s *server) setAvailability(ctx context.Context, namespace, user string, a lastseen.AvailabilityState) error {
	at, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	_, err = s.Store.SetAvailability(ctx, namespace, user, a, at)
	if store.MayBeDone(err) {
		s.SignalAvailability(ctx, namespace, user)
	}
	return err
}

// showAvailability returns the availability of a user as the user sees it.
func showAvailability(user string, availability lastseen.AvailabilityState) availabilityResponse {
	return availabilityResponse{
		user, request.Optional(string(availability.Availability)), request.Optional(availability.Note),
		request.Timestamp(availability.Until),
	}
}
