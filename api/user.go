package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/web"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/connections"
)

// @ID getUser
// @Summary Look up one user
// @Description A user never seen is not an error: they are grey, and `last_seen` is null. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets another user as never seen, unless the other
// @Description user has the token's user among their contacts.
// @Param as_of query string false "time of evaluation"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {object} userResponse "The presence of the user."
// @Router /v1/namespaces/{namespace}/users/{user} [get]
func (s *server) getUser(c echo.Context, q request.Query, namespace, user string) error {
	v, p, err := s.lookUp(c, q, namespace, user)
	if err != nil {
		return err
	}
	response := userResponse{presence: p, evaluated: v.evaluated()}
	return respondCached(c, response, v, response.presence)
}

// lookUp returns the presence of a user, in the view that a query asks for.
func (s *server) lookUp(
	c echo.Context, q request.Query, namespace, user string,
) (v view, p presence, err error) {
	if v, err = s.view(c, namespace, q); err != nil {
		return v, p, err
	}
	states, details, err := s.readerFor(c, namespace).Describe(c.Request().Context(), namespace, []string{user})
	if err != nil {
		return v, p, err
	}
	return v, v.presence(user, states[0], details), nil
}

// Sizes of dots in pixels.
const (
	minDotSize     = 8
	maxDotSize     = 512
	defaultDotSize = 16
)

// @ID getUserDot
// @Summary Show one user as a dot
// @Description Returns an SVG image. A ring is grey: the user is offline. A disc with a bar is red: the user is online,
// @Description and busy or in a call. A disc with the hands of a clock is yellow: the user is away, idle, or was online
// @Description a while ago. A filled disc is green: the user is online. Its title says what it shows, such as "alice was
// @Description last seen 3 minutes ago" or "bob is busy: in a meeting". An error is not an image: if the store is
// @Description unavailable, the response is 503, never a grey dot. In `<img>`, browsers send no `Authorization`, so that
// @Description anonymous callers need to be allowed to read. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets the ring of a user never seen, unless the other
// @Description user has the token's user among their contacts.
// @Produce image/svg+xml
// @Param size query integer false "width and height"
// @Param as_of query string false "time of evaluation"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {string} string "The image."
// @Router /v1/namespaces/{namespace}/users/{user}/dot.svg [get]
func (s *server) getDot(c echo.Context, q request.Query, namespace, user string) error {
	r := request.Params{Query: q}
	size := r.Number("size", minDotSize, maxDotSize, defaultDotSize)
	if r.Err != nil {
		return r.Err
	}
	v, p, err := s.lookUp(c, q, namespace, user)
	if err != nil {
		return err
	}
	image := web.Dot(string(p.dot()), dotTitle(p, v.asOf), size)
	header := c.Response().Header()
	// Pages of any origin may show the image, and opened as a page, it loads nothing.
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	header.Set("Content-Security-Policy", "default-src 'none'")
	if cached(c, request.Tag(image), v.maxAge([]presence{p})) {
		return c.NoContent(http.StatusNotModified)
	}
	header.Set(echo.HeaderContentType, "image/svg+xml")
	return request.Send(c, http.StatusOK, image)
}

// dot returns the dot of a user.
func (p presence) dot() lastseen.Dot {
	if p.userDetails == nil {
		return lastseen.DotOf(p.Status, "", false, false)
	}
	return lastseen.DotOf(p.Status, p.Availability, p.IdleSince != 0, p.InCall)
}

// dotTitle returns what an image shows in words. They are coarse, because a cache may keep them for a few seconds.
func dotTitle(p presence, asOf lastseen.Instant) string {
	title := p.User
	said := ""
	if d := p.userDetails; d != nil && p.Status != lastseen.Grey {
		said = cmp.Or(string(d.Availability), d.Activity)
		if d.InCall {
			said = "in a call"
		}
	}
	switch {
	case p.Status == lastseen.Green:
		title += " is " + cmp.Or(said, "online")
	case p.LastSeen == 0:
		title += " is offline"
	case said != "":
		title += " is " + said + " and was last seen " + web.Ago(int64(asOf)-int64(p.LastSeen))
	default:
		title += " was last seen " + web.Ago(int64(asOf)-int64(p.LastSeen))
	}
	if p.userDetails != nil && p.Note != "" {
		title += ": " + p.Note
	}
	return title
}

// @ID deleteUser
// @Summary Delete a user
// @Description Deletes a user, with their devices, contacts and calls, from all responses at once. The deletion survives a
// @Description crash. Deleting an unknown user is not an error. The user's connections are closed within a second, on all
// @Description servers. The next ping makes the user known again. Requires the scope `admin`.
// @Success 204 "Deleted."
// @Router /v1/namespaces/{namespace}/users/{user} [delete]
func (s *server) deleteUser(c echo.Context, _ request.Query) error {
	namespace, user, err := request.Names(c, lastseen.CheckStoredUser)
	if err != nil {
		return err
	}
	// First: a server that writes what it received on connections reads before which of them to close, so that the
	// user does not come back by what is received until they are closed. Only a write that is on its way to the store
	// at this moment can come after the deletion. It makes the user known again, as a ping does that comes later.
	if err := s.Store.CloseConnections(c.Request().Context(), namespace, user); err != nil {
		return err
	}
	return respondNothing(c, s.forget(c.Request().Context(), namespace, user))
}

// forget deletes a user, and has the connections of the other party of the user's call learn that the call has ended.
func (s *server) forget(ctx context.Context, namespace, user string) error {
	found, err := s.Store.ReadCalls(ctx, namespace, nil, []string{user})
	if err != nil && !errors.Is(err, store.ErrNoCalls) {
		return err
	}
	err = s.Store.Forget(ctx, namespace, user)
	if !store.MayBeDone(err) {
		return err
	}
	for _, c := range found {
		other := c.From
		if other == user {
			other = c.To
		}
		if other != "" { // as in the empty call of a user without one
			s.Signal(ctx, calls.Signal(namespace, c.ID, other),
				"the other party learns later that the call has ended")
		}
	}
	return err
}

// deviceEntry is one device of a user, or one connection of a device.
type deviceEntry struct {
	// The ID of the device. Several connections can have the same.
	ID string `json:"id"`
	// What the device is.
	Kind lastseen.DeviceKind `json:"kind"`
	// What the client stored with the device. Null for nothing.
	Meta request.Meta `json:"meta" swaggertype:"object" extensions:"x-nullable"`
	// When the device was first seen.
	Since request.Timestamp `json:"since" swaggertype:"string" format:"date-time"`
	// The time of the newest ping or leave of the device. While a connection is open, it can be older than the user's
	// by as much as `green`.
	LastSeen request.Timestamp `json:"last_seen" swaggertype:"string" format:"date-time"`
	// Whether the person uses the device.
	Activity string `json:"activity"`
	// Since when the person does not use the device. Null while they do.
	IdleSince request.Timestamp `json:"idle_since" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Whether the newest event of the device is a leave.
	Gone bool `json:"gone"`
	// Whether the device keeps the user present: it has not left, and was seen recently.
	Live bool `json:"live"`
} // @name UserDevice

// devicesResponse holds the devices of a user.
type devicesResponse struct {
	User string `json:"user" minLength:"1" maxLength:"256"`
	// The time at which it was decided which devices are live.
	AsOf request.Timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// The kinds of the live devices, in order, without repetition.
	Kinds          []lastseen.DeviceKind `json:"kinds"`
	*deviceDetails `json:",inline"`
} // @name UserDevices

// deviceDetails is what only the user and API keys see.
type deviceDetails struct {
	// Whether the person uses any of the live devices. Null without a live device.
	Activity *string `json:"activity" extensions:"x-nullable" validate:"optional"`
	// Since when the person uses none of the live devices. Null while they do, and without a live device.
	IdleSince request.Timestamp `json:"idle_since" swaggertype:"string" format:"date-time" extensions:"x-nullable" validate:"optional"` //nolint:lll // a tag
	// The devices, those seen last first, at most 32.
	Devices []deviceEntry `json:"devices" validate:"optional"`
}

// @ID listDevices
// @Summary List the devices of a user
// @Description Returns the devices and connections of which the store has a record, including those that left. A record
// @Description is deleted when the user was seen two green thresholds and a ping interval after the device. A user
// @Description without devices is not an error.
// @Description
// @Description Requires the scope `read`. API keys and the user's own token see everything. For other callers, the
// @Description response has only the `kinds`, and is 403 unless the namespace's setting `show-kinds` is on. With the
// @Description setting `visibility: contacts`, a user's token gets no kinds of another user, unless the other user has the
// @Description token's user among their contacts.
// @Success 200 {object} devicesResponse "The devices."
// @Router /v1/namespaces/{namespace}/users/{user}/devices [get]
func (s *server) getDevices(c echo.Context, _ request.Query, namespace, user string) error {
	ctx := c.Request().Context()
	stored, err := s.storeFor(c, namespace).ReadDevices(ctx, namespace, user)
	if err != nil {
		return err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	response := devicesResponse{User: user, AsOf: request.Timestamp(now), Kinds: []lastseen.DeviceKind{}}
	live := stored.Live(now)
	for _, r := range live {
		response.Kinds = append(response.Kinds, r.Kind)
	}
	slices.Sort(response.Kinds)
	response.Kinds = slices.Compact(response.Kinds)
	if guard.CallerOf(c).CanSeeDevices(namespace, user) {
		response.deviceDetails = detailsOf(stored, live, now)
	}
	return request.Respond(c, response)
}

// detailsOf returns what a response shows of the devices of a user, given the live records.
func detailsOf(stored store.UserDevices, live []lastseen.DeviceRecord, now lastseen.Instant) *deviceDetails {
	d := &deviceDetails{Devices: []deviceEntry{}}
	if idle, known := stored.Activity(now); known {
		d.Activity, d.IdleSince = new(activityOf(idle)), request.Timestamp(idle)
	}
	for i, r := range stored.Records {
		d.Devices = append(d.Devices, deviceEntry{
			ID: connections.DeviceOf(r.ID), Kind: r.Kind, Meta: request.Meta(stored.Meta[i]),
			Since: request.Timestamp(r.Since), LastSeen: request.Timestamp(r.At),
			Activity: activityOf(r.IdleSince), IdleSince: request.Timestamp(r.IdleSince),
			Gone: r.Gone, Live: slices.Contains(live, r),
		})
	}
	return d
}

// activityOf returns the activity of a device that is idle since a time; 0 for one that is active.
func activityOf(idle lastseen.Instant) string {
	if idle != 0 {
		return request.Idle
	}
	return request.Active
}

// @ID closeConnections
// @Summary Close the connections of a user
// @Description Closes all WebSocket connections that the user has open now, on all servers, within a second. They get
// @Description the close code 4410, and no leave is recorded. A client with a valid token can connect again. Requires the
// @Description scope `admin`.
// @Success 204 "The connections are being closed."
// @Router /v1/namespaces/{namespace}/users/{user}/connections [delete]
func (s *server) closeConnections(c echo.Context, _ request.Query, namespace, user string) error {
	return respondNothing(c, s.Store.CloseConnections(c.Request().Context(), namespace, user))
}

// respondNothing sends a response without a body, unless the request failed.
func respondNothing(c echo.Context, err error) error {
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
