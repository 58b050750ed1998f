package api

import (
	"encoding/binary"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// presence is a user in a response.
type presence struct {
	// The ID of the user.
	User string `json:"user" minLength:"1" maxLength:"256"`
	// green: seen recently. yellow: seen a while ago. grey: seen longer ago, left, or never seen.
	Status lastseen.Status `json:"status"`
	// The time of the newest ping or leave. Null for a user never seen.
	LastSeen request.Timestamp `json:"last_seen" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Whether the newest event is a leave.
	Left bool `json:"left"`
	// When the status changes unless a ping or a leave changes it sooner. Null for grey.
	ValidUntil   request.Timestamp `json:"valid_until" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	*userDetails `json:",inline"`  // nil for most users
} // @name UserPresence

// userDetails is what a response shows of a user who has an availability, is idle, or is in a call. Fields that do not
// apply are omitted.
type userDetails struct {
	// The user's availability, never `invisible`. It changes no status. Absent if the user has set none.
	Availability lastseen.Availability `json:"availability,omitzero" validate:"optional"`
	// When `availability` and `note` end. Absent if they have no end.
	AvailabilityUntil request.Timestamp `json:"availability_until,omitzero" swaggertype:"string" format:"date-time" validate:"optional"` //nolint:lll // a tag
	// The user's note. It is text, never HTML. Absent without a note.
	Note string `json:"note,omitzero" maxLength:"140" validate:"optional"`
	// Always `idle`, and present if the user uses none of their devices. Grey users are never idle.
	Activity string `json:"activity,omitzero" validate:"optional"`
	// Since when the user uses none of their devices.
	IdleSince request.Timestamp `json:"idle_since,omitzero" swaggertype:"string" format:"date-time" validate:"optional"`
	// Present, and true, if the user is in an active call. Grey users are never in a call.
	InCall bool `json:"in_call,omitzero" validate:"optional"`

	inCallUntil lastseen.Instant // unless it is renewed before; 0 if the user is not in a call
}

// view is how a response shows users.
type view struct {
	asOf       lastseen.Instant // statuses are evaluated at this instant
	thresholds lastseen.Thresholds
	now        lastseen.Instant // by the store's clock
}

// presence returns what a response shows of a user, with the user's details if there are some. Every presence in a
// response is made here or by [published].
func (v view) presence(user string, state lastseen.State, details map[string]store.Details) presence {
	p := v.thresholds.Presence(user, state, v.asOf)
	var shown *userDetails
	if len(details) > 0 {
		shown = showDetails(details[user], p.Status, v.asOf, v.now)
	}
	return presence{p.User, p.Status, request.Timestamp(p.LastSeen), p.Left, request.Timestamp(p.ValidUntil), shown}
}

// published returns what a response shows of a user in a changes feed. There a status holds until the next change, so
// it does not say how long it is valid. So does the user's availability: the feed reports when it ends.
func published(user string, p store.Published) presence {
	return presence{
		User: user, Status: p.Status, LastSeen: request.Timestamp(p.At), Left: p.Left,
		userDetails: showDetails(p.Details, p.Status, 0, 0),
	}
}

// AppendPublished appends the fields of a user as published in a feed, in JSON without braces.
func AppendPublished(b []byte, u feed.Update) []byte {
	return published(u.User, u.Published).appendFields(b)
}

// showDetails returns what a response shows of a user's details; nil for nothing. What ends by itself is evaluated at
// the later of two times, so that an as_of in the past does not show what has ended.
func showDetails(d store.Details, status lastseen.Status, asOf, now lastseen.Instant) *userDetails {
	if d == (store.Details{}) { // as of most
		return nil
	}
	at := max(asOf, now)
	a := d.Availability.At(at).Public()
	shown := userDetails{
		Availability: a.Availability, AvailabilityUntil: request.Timestamp(a.Until), Note: a.Note,
	}
	if d.IdleSince != 0 && status != lastseen.Grey {
		shown.Activity, shown.IdleSince = request.Idle, request.Timestamp(d.IdleSince)
	}
	if d.InCallUntil > at && status != lastseen.Grey {
		shown.InCall, shown.inCallUntil = true, d.InCallUntil
	}
	if shown == (userDetails{}) {
		return nil
	}
	return &shown
}

// evaluated returns what a response states about the view.
func (v view) evaluated() evaluated {
	return evaluated{request.Timestamp(v.asOf), v.thresholds.Green.Milliseconds(), v.thresholds.Yellow.Milliseconds()}
}

// evaluated is the part of a response from which clients can age the statuses themselves.
type evaluated struct {
	// The time at which the statuses were evaluated.
	AsOf request.Timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// The age at which users turn yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// The age at which users turn grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
}

// userResponse is the response about one user.
type userResponse struct {
	presence  `json:",inline"`
	evaluated `json:",inline"`
	// Only in responses to pings: the time until the next ping. It varies, so that clients do not ping at the same
	// time. A server under load asks for fewer pings: the time grows, but not beyond half of `green_ms` unless the
	// ping interval is longer.
	PingAfterMs int64 `json:"ping_after_ms,omitzero" format:"int64" minimum:"1" validate:"optional"`
} // @name Presence

// presences are several users and how their statuses were evaluated.
type presences struct {
	evaluated `json:",inline"`
	Users     []presence `json:"users"`
}

// view returns the view that a query asks for.
func (s *server) view(c echo.Context, namespace string, q request.Query) (v view, err error) {
	r := request.Params{Query: q}
	v.thresholds = r.Thresholds(s.settings(namespace).Thresholds)
	v.asOf = r.Time("as_of", 0)
	if r.Err != nil {
		return v, r.Err
	}
	v.now, err = s.Store.Now(c.Request().Context())
	if v.asOf == 0 {
		v.asOf = v.now
	}
	return v, err
}

// maxMaxAge is the longest time that a cache may keep a response about users, in milliseconds. A ping or a leave can
// change it at any time.
const maxMaxAge = 5000

// respondCached sends JSON about users, or 304: see [cached]. The ETag is weak: it is the same for responses that
// differ only in the time of the request or in their encoding.
func respondCached(c echo.Context, body any, v view, users ...presence) error {
	if !cached(c, etagOf(v.evaluated(), users), v.maxAge(users)) {
		return request.Respond(c, body)
	}
	if len(users) > 1 { // as in the response that this replaces, if that is large
		c.Response().Header().Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
	}
	return c.NoContent(http.StatusNotModified)
}

// cached sets the headers by which caches may keep a response about users for a time in milliseconds, and reports
// whether the client has the response already, by its ETag. It then gets status 304 and no body. Responses to
// authenticated callers are private.
func cached(c echo.Context, tag string, age int64) bool {
	header := c.Response().Header()
	header.Set("ETag", "W/"+tag)
	policy := "max-age=" + strconv.FormatInt(age/1000, 10)
	if caller := guard.CallerOf(c); caller != nil {
		header.Add(echo.HeaderVary, echo.HeaderAuthorization)
		if !caller.IsAnonymous() {
			policy = "private, " + policy
		}
	}
	header.Set(echo.HeaderCacheControl, policy)
	return request.TagMatches(c.Request().Header.Values("If-None-Match"), tag)
}

// maxAge returns how long a response about users may be kept, in milliseconds: until the first of their statuses
// changes, or of their availabilities or calls ends, at most for [maxMaxAge].
func (v view) maxAge(users []presence) int64 {
	age := int64(maxMaxAge)
	for _, u := range users {
		if u.ValidUntil != 0 {
			age = min(age, int64(u.ValidUntil)-int64(v.asOf))
		}
		if u.userDetails == nil {
			continue
		}
		for _, end := range []lastseen.Instant{lastseen.Instant(u.AvailabilityUntil), u.inCallUntil} {
			if end != 0 {
				age = min(age, int64(end)-int64(v.now))
			}
		}
	}
	return age
}

// etagOf returns a hash, in quotes, of a response about users without its time of evaluation. It is the same on every
// server with the same thresholds.
func etagOf(e evaluated, users []presence) string {
	content := make([]byte, 0, 64)
	content = binary.BigEndian.AppendUint64(content, uint64(e.GreenMs))
	content = binary.BigEndian.AppendUint64(content, uint64(e.YellowMs))
	for _, u := range users {
		content = append(append(content, u.User...), 0) // user IDs contain no such byte
		content = strconv.AppendBool(append(content, u.Status...), u.Left)
		content = binary.BigEndian.AppendUint64(content, uint64(u.LastSeen))
		content = binary.BigEndian.AppendUint64(content, uint64(u.ValidUntil))
		if u.userDetails != nil {
			content = append(u.userDetails.appendFields(append(content, 1)), 0) // nor do user IDs begin with byte 1
		}
	}
	return request.Tag(content)
}

// AppendJSON is for [request.WriteJSON].
func (r userResponse) AppendJSON(b []byte) []byte {
	b = r.presence.appendFields(append(b, '{'))
	b = r.evaluated.appendFields(append(b, ','))
	if r.PingAfterMs != 0 {
		b = strconv.AppendInt(append(b, `,"ping_after_ms":`...), r.PingAfterMs, 10)
	}
	return append(b, '}')
}

func (p presences) appendFields(b []byte) []byte {
	return appendPresences(append(p.evaluated.appendFields(b), `,"users":`...), p.Users)
}

func appendPresences(b []byte, users []presence) []byte {
	b = append(b, '[')
	for i, u := range users {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(u.appendFields(append(b, '{')), '}')
	}
	return append(b, ']')
}

func (e evaluated) appendFields(b []byte) []byte {
	b = e.AsOf.AppendJSON(append(b, `"as_of":`...))
	b = strconv.AppendInt(append(b, `,"green_ms":`...), e.GreenMs, 10)
	return strconv.AppendInt(append(b, `,"yellow_ms":`...), e.YellowMs, 10)
}

func (p presence) appendFields(b []byte) []byte {
	b = request.AppendString(append(b, `"user":`...), p.User)
	b = append(append(append(b, `,"status":"`...), p.Status...), '"')
	b = p.LastSeen.AppendJSON(append(b, `,"last_seen":`...))
	b = strconv.AppendBool(append(b, `,"left":`...), p.Left)
	b = p.ValidUntil.AppendJSON(append(b, `,"valid_until":`...))
	if p.userDetails == nil {
		return b
	}
	return p.userDetails.appendFields(b)
}

// appendFields appends the fields that apply, each after a comma.
func (d userDetails) appendFields(b []byte) []byte {
	if d.Availability != "" {
		b = append(append(append(b, `,"availability":"`...), d.Availability...), '"')
	}
	if d.AvailabilityUntil != 0 {
		b = d.AvailabilityUntil.AppendJSON(append(b, `,"availability_until":`...))
	}
	if d.Note != "" {
		b = request.AppendString(append(b, `,"note":`...), d.Note)
	}
	if d.IdleSince != 0 {
		b = append(append(append(b, `,"activity":"`...), d.Activity...), '"')
		b = d.IdleSince.AppendJSON(append(b, `,"idle_since":`...))
	}
	if d.InCall {
		b = append(b, `,"in_call":true`...)
	}
	return b
}
