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
	User       string          `json:"user"`
	Status     lastseen.Status `json:"status"`
	LastSeen   timestamp       `json:"last_seen"`
	Left       bool            `json:"left"`
	ValidUntil timestamp       `json:"valid_until"`
}

func presenceOf(p lastseen.Presence) presence {
	return presence{
		User: p.User, Status: p.Status, LastSeen: timestamp(p.LastSeen), Left: p.Left,
		ValidUntil: timestamp(p.ValidUntil),
	}
}

// userAnswer is the answer about one user.
type userAnswer struct {
	presence    `json:",inline"`
	AsOf        timestamp `json:"as_of"`
	PingAfterMs int64     `json:"ping_after_ms,omitzero"`
}

// usersAnswer is the answer about several users.
type usersAnswer struct {
	AsOf  timestamp  `json:"as_of"`
	Users []presence `json:"users"`
}

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
