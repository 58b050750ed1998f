package api

import (
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// presence is how a user appears in every answer.
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

func presenceOf(p lastseen.Presence) presence {
	return presence{
		User: p.User, Status: p.Status, LastSeen: timestamp(p.LastSeen), Left: p.Left,
		ValidUntil: timestamp(p.ValidUntil),
	}
}

// evaluated is how the statuses in an answer were evaluated: all that a client needs to age them by itself.
type evaluated struct {
	// The instant at which the statuses were evaluated.
	AsOf timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// From this age on a present user is yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// From this age on a present user is grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
}

func evaluatedAt(asOf lastseen.Instant, t lastseen.Thresholds) evaluated {
	return evaluated{AsOf: timestamp(asOf), GreenMs: t.Green.Milliseconds(), YellowMs: t.Yellow.Milliseconds()}
}

// userAnswer is the answer about one user.
type userAnswer struct {
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

// evaluate returns the instant and the thresholds by which a lookup is evaluated.
func (s *server) evaluate(c echo.Context, namespace string, q query) (lastseen.Instant, lastseen.Thresholds, error) {
	thresholds, err := q.thresholds(s.settings(namespace).Thresholds)
	if err != nil {
		return 0, thresholds, err
	}
	if _, given := q.get("as_of"); given {
		asOf, err := q.time("as_of", 0)
		return asOf, thresholds, err
	}
	now, err := s.store.Now(c.Request().Context())
	return now, thresholds, err
}

// appender is an answer that is sent so often, or holds so many users, that it is encoded without
// reflection: that takes an eighth of the time (see BenchmarkEncode).
type appender interface {
	appendJSON(b []byte) []byte
}

func (a userAnswer) appendJSON(b []byte) []byte {
	b = a.presence.appendFields(append(b, '{'))
	b = a.evaluated.appendFields(append(b, ','))
	if a.PingAfterMs != 0 {
		b = strconv.AppendInt(append(b, `,"ping_after_ms":`...), a.PingAfterMs, 10)
	}
	return append(b, '}')
}

func (a usersAnswer) appendJSON(b []byte) []byte {
	b = a.appendFields(append(b, '{'))
	if a.Hint != "" {
		b = appendString(append(b, `,"hint":`...), a.Hint)
	}
	return append(b, '}')
}

func (a listAnswer) appendJSON(b []byte) []byte {
	b = append(a.appendFields(append(b, '{')), `,"next_cursor":`...)
	if a.NextCursor == nil {
		return append(b, "null}"...)
	}
	return append(appendString(b, *a.NextCursor), '}')
}

func (a presences) appendFields(b []byte) []byte {
	b = append(a.evaluated.appendFields(b), `,"users":[`...)
	for i, u := range a.Users {
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
