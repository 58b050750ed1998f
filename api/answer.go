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
	// The ID of the user.
	User string `json:"user" minLength:"1" maxLength:"256"`
	// green: seen recently. yellow: seen a while ago. grey: seen longer ago, left, or never seen.
	Status lastseen.Status `json:"status"`
	// The time of the newest ping or leave. Null for a user never seen.
	LastSeen timestamp `json:"last_seen" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Whether the newest event is a leave.
	Left bool `json:"left"`
	// When the status changes unless a ping or a leave changes it sooner. Null for grey.
	ValidUntil timestamp `json:"valid_until" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
} // @name UserPresence

func presenceOf(p lastseen.Presence) presence {
	return presence{
		User: p.User, Status: p.Status, LastSeen: timestamp(p.LastSeen), Left: p.Left,
		ValidUntil: timestamp(p.ValidUntil),
	}
}

// evaluated is how the statuses in an answer were evaluated: all that a client needs to age them by itself.
type evaluated struct {
	// The time at which the statuses were evaluated.
	AsOf timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// The age at which users turn yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// The age at which users turn grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
}

func evaluatedAt(asOf lastseen.Instant, t lastseen.Thresholds) evaluated {
	return evaluated{AsOf: timestamp(asOf), GreenMs: t.Green.Milliseconds(), YellowMs: t.Yellow.Milliseconds()}
}

// userAnswer is the answer about one user.
type userAnswer struct {
	presence  `json:",inline"`
	evaluated `json:",inline"`
	// Only in responses to pings: the time until the next ping. It varies, so that clients do not ping at the same
	// time.
	PingAfterMs int64 `json:"ping_after_ms,omitzero" format:"int64" minimum:"1" validate:"optional"`
} // @name Presence

// presences are several users and how their statuses were evaluated.
type presences struct {
	evaluated `json:",inline"`
	Users     []presence `json:"users"`
}

// usersAnswer is the answer to a lookup of several users.
type usersAnswer struct {
	presences `json:",inline"`
	// Only in responses to lookups by GET: a likely mistake in the request. Normally absent.
	Hint string `json:"hint,omitzero" validate:"optional"`
} // @name PresenceList

// answer sends JSON with status 200.
func answer(c echo.Context, body any) error {
	return write(c, http.StatusOK, typeJSON, body)
}

// buffers are what answers are encoded in.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Buffers that a large answer made large are not kept.
const maxBuffer = 64 << 10

// write sends JSON. It is encoded before anything is sent, so that an error can still be answered, and compressed if
// it is large and the caller takes that.
func write(c echo.Context, status int, contentType []string, body any) error {
	buffer := buffers.Get().(*[]byte)
	encoded, err := appendJSON((*buffer)[:0], body)
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	defer keep(buffer, encoded)
	header := c.Response().Header()
	header[echo.HeaderContentType] = contentType
	if len(encoded) <= minGzip {
		return send(c, status, encoded)
	}
	varyByEncoding(header)
	if !acceptsGzip(c.Request().Header[echo.HeaderAcceptEncoding]) {
		return send(c, status, encoded)
	}
	header[echo.HeaderContentEncoding] = encodingGzip
	second := buffers.Get().(*[]byte)
	compressed := appendGzip((*second)[:0], encoded)
	defer keep(second, compressed)
	return send(c, status, compressed)
}

// keep gives a buffer back, as what it has become.
func keep(buffer *[]byte, content []byte) {
	if *buffer = content; len(content) <= maxBuffer {
		buffers.Put(buffer)
	}
}

// send sends a response.
func send(c echo.Context, status int, content []byte) error {
	response := c.Response()
	if len(content) > autoLength {
		response.Header().Set(echo.HeaderContentLength, strconv.Itoa(len(content)))
	}
	response.WriteHeader(status)
	_, err := response.Write(content)
	return notSent(err)
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
