package api

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

// pingsBody is the JSON of many pings.
type pingsBody struct {
	Pings *[]item `json:"pings"`
} // @name PingBatch

// leavesBody is the JSON of many leaves.
type leavesBody struct {
	Leaves *[]item `json:"leaves"`
} // @name LeaveBatch

// bulkResponse is the response to many pings or leaves.
type bulkResponse struct {
	// The number of events recorded, including those older than the stored time.
	Recorded int `json:"recorded" minimum:"0"`
} // @name BatchResult

// @ID recordPings
// @Summary Record many pings
// @Description JSON: at most 10,000 pings and 1 MiB, recorded all or none. If an item is invalid, nothing is recorded,
// @Description and `errors` lists the first 20 invalid items by index.
// @Description
// @Description NDJSON: a stream of any length with one ping per line of at most 4 KiB, recorded as it arrives. Lines
// @Description before an invalid line stay recorded; the error has the number of that line and the number of pings
// @Description recorded. The caller is authorized again before each chunk. After a 503, some pings may be recorded. It
// @Description is safe to send all of them again. Requires the scope `ping`; a user's token is not enough.
// @Param body body pingsBody true "The pings."
// @Success 200 {object} bulkResponse "The number of events recorded."
// @Router /v1/namespaces/{namespace}/pings [post]
func (s *server) pings(c echo.Context, _ request.Query, namespace string) error {
	var body pingsBody
	return s.bulk(c, namespace, telemetry.Ping, &body, &body.Pings, "pings")
}

// @ID recordLeaves
// @Summary Record many leaves
// @Description Follows the same rules as recording many pings. A server that shuts down can record a leave for each of
// @Description its users in one request. Requires the scope `ping`; a user's token is not enough.
// @Param body body leavesBody true "The leaves."
// @Success 200 {object} bulkResponse "The number of events recorded."
// @Router /v1/namespaces/{namespace}/leaves [post]
func (s *server) leaves(c echo.Context, _ request.Query, namespace string) error {
	var body leavesBody
	return s.bulk(c, namespace, telemetry.Leave, &body, &body.Leaves, "leaves")
}

// bulk records many events: a stream of lines, or JSON that is decoded into a value. The list is its field.
func (s *server) bulk(
	c echo.Context, namespace string, e telemetry.Event, into any, list **[]item, field string,
) error {
	media, err := request.MediaType(c)
	if err != nil {
		return err
	}
	if media == request.NDJSON {
		return s.recordLines(c, e, namespace)
	}
	hold := s.hold(c)
	defer hold.Release()
	if err := itemsForm.Read(c, hold, into, strict); err != nil {
		return err
	}
	if *list == nil {
		return problem.Errorf(problem.InvalidJSON, "The field %s is missing.", field)
	}
	return s.recordItems(c, e, namespace, **list)
}

// itemsForm is the form of many pings or leaves.
var itemsForm = request.Form{Max: 1 << 20, Items: 2 * request.MaxItems, Sign: '{', Each: 192} // see TestDecodedMemory

// recordItems records all items, or none if one of them is invalid.
func (s *server) recordItems(c echo.Context, e telemetry.Event, namespace string, items []item) error {
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	b := batch{plain: make([]store.PresenceEvent, 0, len(items))}
	var bad problem.Items
	for i, item := range items {
		if err := b.add(e, namespace, item.User, item.eventBody, now); err != nil {
			bad.Add(i, err)
		}
	}
	if err = bad.Err(); err == nil {
		_, err = s.record(ctx, e, namespace, &b)
	}
	if err != nil {
		s.Telemetry.Refused(e, len(items))
		return err
	}
	return request.Respond(c, bulkResponse{Recorded: len(items)})
}

// item is one ping or leave of many.
type item struct {
	User      string `json:"user" minLength:"1" maxLength:"256"`
	eventBody `json:",inline"`
} // @name BatchItem

// strict reads the types of bodies and frames.
var strict = request.Strict(
	json.UnmarshalFromFunc(decodeTime),
	json.UnmarshalFromFunc(request.DecodeScalar),
	json.UnmarshalFromFunc(decodeItem),
	json.UnmarshalFromFunc(request.DecodeDevice),
	json.UnmarshalFromFunc(decodeCallApp),
	request.ListOf[[]string](request.MaxUsers, request.DecodeString),
	request.ListOf[contactIDs](store.MaxContacts, request.DecodeString),
	request.ListOf[[]item](request.MaxItems, decodeItem),
)

func decodeItem(d *jsontext.Decoder, i *item) error { return request.DecodeObject(d, i, decodeField) }

func decodeField(d *jsontext.Decoder, i *item, name string) error {
	switch name {
	case "user":
		return request.DecodeString(d, &i.User)
	case "at":
		return decodeTime(d, &i.At)
	case "device":
		return request.DecodeOptional(d, &i.Device, request.DecodeDevice)
	case "activity":
		return request.DecodeString(d, &i.Activity)
	case "after":
		return request.DecodeString(d, &i.After)
	default:
		return request.UnknownField[item](d)
	}
}

const (
	maxLine     = 4096 // bytes of a line of NDJSON, its end not counted
	maxChunk    = 512  // lines recorded at once
	readBuffer  = 16 << 10
	lineMemory  = 128              // bytes that a line takes until it is recorded, without its user
	extraMemory = 256              // the same, for a device or a wait, without their texts
	lineTimeout = 30 * time.Second // for the next chunk to arrive
)

// recordLines records a stream of lines in chunks. A chunk ends when it is full or when no whole line has arrived, so
// slow streams are recorded without delay. Only one chunk is in memory. An error does not undo the chunks before it. A
// stream can last for days, so the caller is authorized again before each chunk.
func (s *server) recordLines(c echo.Context, e telemetry.Event, namespace string) error {
	l := lines{hold: s.hold(c), controller: http.NewResponseController(c.Response())}
	defer l.hold.Release()
	if err := l.hold.Grow(readBuffer); err != nil {
		return err
	}
	l.reader = bufio.NewReaderSize(c.Request().Body, readBuffer)
	recorded := 0
	for {
		var chunk batch
		readErr := s.readChunk(c, e, namespace, &l, &chunk)
		if chunk.size() > 0 {
			err := s.authorizeAgain(c, func(caller *auth.Caller) error {
				return guard.PingBulk.CheckRequest(c, caller)
			})
			if err == nil {
				_, err = s.record(c.Request().Context(), e, namespace, &chunk)
			}
			if err != nil {
				s.Telemetry.Refused(e, chunk.size())
				return interrupted(c, classify(err), err, l.chunkStart, recorded)
			}
			recorded += chunk.size()
		}
		l.forget()
		if errors.Is(readErr, io.EOF) {
			return request.Respond(c, bulkResponse{Recorded: recorded})
		}
		if readErr != nil {
			return interrupted(c, classify(readErr), readErr, l.number, recorded)
		}
	}
}

// interrupted is the error of a stream of which a part is recorded. The response does not wait for the rest of the
// stream, so the connection ends.
func interrupted(c echo.Context, e *problem.Error, cause error, line, recorded int) error {
	c.Response().Header().Set(echo.HeaderConnection, "close")
	stopped := *e
	stopped.Line, stopped.Recorded = line, &recorded
	return stopped.Because(cmp.Or(stopped.Cause, cause))
}

// readChunk reads the lines of the next chunk. With an error, the chunk has the lines before it.
func (s *server) readChunk(c echo.Context, e telemetry.Event, namespace string, l *lines, chunk *batch) error {
	l.extendDeadlines()
	now, err := s.Store.Now(c.Request().Context())
	if err != nil {
		return err
	}
	l.chunkStart = l.number + 1
	for chunk.size() < maxChunk {
		line, err := l.next()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var i item
			if err := request.Unmarshal(line, &i, strict); err != nil {
				return err
			}
			if err := l.keep(i); err != nil {
				return err
			}
			if err := chunk.add(e, namespace, i.User, i.eventBody, now); err != nil {
				return err
			}
		}
		if !l.waiting() {
			break
		}
	}
	return nil
}

// lines reads a stream line by line.
type lines struct {
	reader     *bufio.Reader
	controller *http.ResponseController
	hold       *limit.Hold
	kept       int // bytes held for the chunk
	number     int // of the last line read, from 1
	chunkStart int // number of the first line of the chunk
}

// extendDeadlines gives the client time for another chunk.
func (l *lines) extendDeadlines() {
	deadline := time.Now().Add(lineTimeout)
	_ = l.controller.SetReadDeadline(deadline)
	_ = l.controller.SetWriteDeadline(deadline.Add(request.WriteTimeout))
}

// keep takes memory for a line of the chunk.
func (l *lines) keep(i item) error {
	size := lineMemory + len(i.User)
	if i.Device != nil || i.After != "" {
		size += extraMemory
	}
	if i.Device != nil {
		size += len(i.Device.ID) + len(i.Device.Meta)
	}
	if err := l.hold.Grow(size); err != nil {
		return err
	}
	l.kept += size
	return nil
}

// forget gives the memory of the chunk back.
func (l *lines) forget() {
	l.hold.Shrink(l.kept)
	l.kept = 0
}

// next returns the next line, which is valid until the next call, or io.EOF after the last line.
func (l *lines) next() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, io.EOF
	}
	l.number++
	if len(bytes.TrimSuffix(line, []byte("\n"))) > maxLine || errors.Is(err, bufio.ErrBufferFull) {
		return nil, problem.Errorf(problem.BodyTooLarge, "The line has more than %d bytes.", maxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, request.ReadError(err)
	}
	return line, nil
}

// waiting reports whether another whole line has arrived.
func (l *lines) waiting() bool {
	buffered, _ := l.reader.Peek(l.reader.Buffered()) // does not block or fail
	return bytes.IndexByte(buffered, '\n') >= 0
}
