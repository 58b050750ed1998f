package api

import (
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// presence is a user in a response.
type presence struct {
	// The user, as your system calls them.
	User string `json:"user" minLength:"1" maxLength:"256"`
	// green: here just now. yellow: here a while ago. grey: longer ago, gone on purpose, or never seen.
	Status lastseen.Status `json:"status"`
	// The newest time that any ping or leave asserted; null for a user never seen.
	LastSeen timestamp `json:"last_seen" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Whether the last thing heard was a leave.
	Left bool `json:"left"`
	// When the status decays if nothing else happens; null for grey. A ping or a leave can change it sooner.
	ValidUntil timestamp `json:"valid_until" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
} // @name Presence

// view is the instant and the thresholds by which a response shows users.
type view struct {
	asOf       lastseen.Instant
	thresholds lastseen.Thresholds
}

// presence returns what a response shows of a user. Every presence in a response is made here.
func (v view) presence(user string, state lastseen.State) presence {
	p := v.thresholds.Presence(user, state, v.asOf)
	return presence{p.User, p.Status, timestamp(p.LastSeen), p.Left, timestamp(p.ValidUntil)}
}

// evaluated returns what a response states about the view.
func (v view) evaluated() evaluated {
	return evaluated{timestamp(v.asOf), v.thresholds.Green.Milliseconds(), v.thresholds.Yellow.Milliseconds()}
}

// evaluated is the part of a response from which clients can age the statuses themselves.
type evaluated struct {
	// The instant at which the statuses were evaluated.
	AsOf timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// From this age on a present user is yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// From this age on a present user is grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
}

// userResponse is the response about one user.
type userResponse struct {
	presence  `json:",inline"`
	evaluated `json:",inline"`
	// In answers to a ping: when to ping next, in milliseconds from now. It differs from answer to
	// answer, so that clients do not ping in step.
	PingAfterMs int64 `json:"ping_after_ms,omitzero" format:"int64" minimum:"1" validate:"optional"`
} // @name UserPresence

// presences are several users and how their statuses were evaluated.
type presences struct {
	evaluated `json:",inline"`
	Users     []presence `json:"users"`
}

// view returns the view that a query asks for.
func (s *server) view(c echo.Context, namespace string, q query) (v view, err error) {
	r := paramReader{query: q}
	v.thresholds = r.thresholds(s.settings(namespace).Thresholds)
	v.asOf = r.time("as_of", 0)
	if r.err != nil || v.asOf != 0 {
		return v, r.err
	}
	v.asOf, err = s.store.Now(c.Request().Context())
	return v, err
}

func (r userResponse) appendJSON(b []byte) []byte {
	b = r.presence.appendFields(append(b, '{'))
	b = r.evaluated.appendFields(append(b, ','))
	if r.PingAfterMs != 0 {
		b = strconv.AppendInt(append(b, `,"ping_after_ms":`...), r.PingAfterMs, 10)
	}
	return append(b, '}')
}

func (p presences) appendFields(b []byte) []byte {
	b = append(p.evaluated.appendFields(b), `,"users":[`...)
	for i, u := range p.Users {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(u.appendFields(append(b, '{')), '}')
	}
	return append(b, ']')
}

func (e evaluated) appendFields(b []byte) []byte {
	b = e.AsOf.appendJSON(append(b, `"as_of":`...))
	b = strconv.AppendInt(append(b, `,"green_ms":`...), e.GreenMs, 10)
	return strconv.AppendInt(append(b, `,"yellow_ms":`...), e.YellowMs, 10)
}

func (p presence) appendFields(b []byte) []byte {
	b = appendString(append(b, `"user":`...), p.User)
	b = append(append(append(b, `,"status":"`...), p.Status...), '"')
	b = p.LastSeen.appendJSON(append(b, `,"last_seen":`...))
	b = strconv.AppendBool(append(b, `,"left":`...), p.Left)
	return p.ValidUntil.appendJSON(append(b, `,"valid_until":`...))
}
