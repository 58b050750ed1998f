package api

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// timestamp is an instant in an answer: RFC 3339, and null if there is none.
type timestamp lastseen.Instant

// MarshalJSONTo writes the instant; see [json.MarshalerTo].
func (t timestamp) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(t.appendJSON(make([]byte, 0, 32)))
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
	return write(c, http.StatusOK, typeJSON, body)
}

// buffers are what answers are encoded in.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Buffers that a large answer made large are not kept.
const maxBuffer = 64 << 10

// write sends JSON. It is encoded before anything is sent, so that an error can still be answered.
func write(c echo.Context, status int, contentType []string, body any) error {
	buffer := buffers.Get().(*[]byte)
	encoded, err := appendJSON((*buffer)[:0], body)
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	response := c.Response()
	response.Header()[echo.HeaderContentType] = contentType
	if len(encoded) > autoLength {
		response.Header().Set(echo.HeaderContentLength, strconv.Itoa(len(encoded)))
	}
	response.WriteHeader(status)
	_, err = response.Write(encoded)
	err = notSent(err)
	if *buffer = encoded; len(encoded) <= maxBuffer {
		buffers.Put(buffer)
	}
	return err
}

// autoLength is the size in bytes up to which package net/http finds out the length of an answer itself.
const autoLength = 2048

// appender is an answer that is sent so often, or holds so many users, that it is encoded without
// reflection: that takes an eighth of the time (see BenchmarkEncode).
type appender interface {
	appendJSON(b []byte) []byte
}

func appendJSON(b []byte, body any) ([]byte, error) {
	if a, ok := body.(appender); ok {
		return a.appendJSON(b), nil
	}
	encoded, err := json.Marshal(body)
	return append(b, encoded...), err
}

func (a userAnswer) appendJSON(b []byte) []byte {
	b = a.appendFields(append(b, '{'))
	b = a.AsOf.appendJSON(append(b, `,"as_of":`...))
	if a.PingAfterMs != 0 {
		b = strconv.AppendInt(append(b, `,"ping_after_ms":`...), a.PingAfterMs, 10)
	}
	return append(b, '}')
}

func (a usersAnswer) appendJSON(b []byte) []byte {
	return append(a.appendFields(append(b, '{')), '}')
}

func (a listAnswer) appendJSON(b []byte) []byte {
	b = append(a.appendFields(append(b, '{')), `,"next_cursor":`...)
	if a.NextCursor == nil {
		return append(b, "null}"...)
	}
	return append(appendString(b, *a.NextCursor), '}')
}

func (a usersAnswer) appendFields(b []byte) []byte {
	b = a.AsOf.appendJSON(append(b, `"as_of":`...))
	b = append(b, `,"users":[`...)
	for i, u := range a.Users {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(u.appendFields(append(b, '{')), '}')
	}
	return append(b, ']')
}

func (p presence) appendFields(b []byte) []byte {
	b = appendString(append(b, `"user":`...), p.User)
	b = append(append(append(b, `,"status":"`...), p.Status...), '"')
	b = p.LastSeen.appendJSON(append(b, `,"last_seen":`...))
	b = strconv.AppendBool(append(b, `,"left":`...), p.Left)
	return p.ValidUntil.appendJSON(append(b, `,"valid_until":`...))
}

// appendString appends a JSON string. Names are valid UTF-8.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // fails for invalid UTF-8 only
	return b
}

func (t timestamp) appendJSON(b []byte) []byte {
	if t == 0 {
		return append(b, "null"...)
	}
	return append(lastseen.Instant(t).Append(append(b, '"')), '"')
}
