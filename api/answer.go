package api

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// timestamp is an instant in an answer: RFC 3339, and null if there is none.
type timestamp lastseen.Instant

// MarshalJSONTo writes the instant; see [json.MarshalerTo].
func (t timestamp) MarshalJSONTo(e *jsontext.Encoder) error {
	if t == 0 {
		return e.WriteToken(jsontext.Null)
	}
	quoted := append(make([]byte, 0, 32), '"')
	quoted = append(lastseen.Instant(t).Append(quoted), '"')
	return e.WriteValue(quoted)
}

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

// userAnswer is the answer about one user.
type userAnswer struct {
	presence `json:",inline"`
	// The instant at which the status was evaluated.
	AsOf timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// In answers to a ping: when to ping next, in milliseconds from now. It differs from answer to
	// answer, so that clients do not ping in step.
	PingAfterMs int64 `json:"ping_after_ms,omitzero" format:"int64" minimum:"1" validate:"optional"`
} // @name UserPresence

// usersAnswer is the answer about several users.
type usersAnswer struct {
	// The instant at which the statuses were evaluated.
	AsOf  timestamp  `json:"as_of" swaggertype:"string" format:"date-time"`
	Users []presence `json:"users"`
} // @name Presences

// answer sends JSON with status 200.
func answer(c echo.Context, body any) error {
	return write(c, http.StatusOK, mediaJSON, body)
}

// write sends JSON. It is encoded before anything is sent, so that an error can still be answered.
func write(c echo.Context, status int, contentType string, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(encoded)))
	return c.Blob(status, contentType, encoded)
}
