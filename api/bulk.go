package api

import (
	"bytes"
	"cmp"
	"errors"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

// pingsBody is the JSON of many pings.
type pingsBody struct {
	Pings *[]request.Item `json:"pings"`
} // @name PingBatch

// leavesBody is the JSON of many leaves.
type leavesBody struct {
	Leaves *[]request.Item `json:"leaves"`
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
	c echo.Context, namespace string, e telemetry.Event, into any, list **[]request.Item, field string,
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
func (s *server) recordItems(c echo.Context, e telemetry.Event, namespace string, items []request.Item) error {
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	b := batch{plain: make([]store.PresenceEvent, 0, len(items))}
	var bad problem.Items
	for i, item := range items {
		if err := b.add(e, namespace, item.User, item.Event, now); err != nil {
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

// strict reads the types of bodies and frames.
var strict = request.Strict(
	json.UnmarshalFromFunc(request.DecodeTime),
	json.UnmarshalFromFunc(request.DecodeScalar),
	json.UnmarshalFromFunc(request.DecodeItem),
	json.UnmarshalFromFunc(request.DecodeDevice),
	json.UnmarshalFromFunc(request.DecodeApp(store.MaxCallApp)),
	request.ListOf[[]string](request.MaxUsers, request.DecodeString),
	request.ListOf[contactIDs](store.MaxContacts, request.DecodeString),
	request.ListOf[[]request.Item](request.MaxItems, request.DecodeItem),
)

const (
	maxChunk    = 512 // lines recorded at once
	lineMemory  = 128 // bytes that a line takes until it is recorded, without its user
	extraMemory = 256 // the same, for a device or a wait, without their texts
)

// recordLines records a stream of lines in chunks. A chunk ends when it is full or when no whole line has arrived, so
// slow streams are recorded without delay. Only one chunk is in memory. An error does not undo the chunks before it. A
// stream can last for days, so the caller is authorized again before each chunk.
func (s *server) recordLines(c echo.Context, e telemetry.Event, namespace string) error {
	hold := s.hold(c)
	defer hold.Release()
	l, err := request.NewLines(c, hold)
	if err != nil {
		return err
	}
	recorded := 0
	for {
		var chunk batch
		readErr := s.readChunk(c, e, namespace, l, &chunk)
		if chunk.size() > 0 {
			err := s.authorizeAgain(c, func(caller *auth.Caller) error {
				return guard.PingBulk.CheckRequest(c, caller)
			})
			if err == nil {
				_, err = s.record(c.Request().Context(), e, namespace, &chunk)
			}
			if err != nil {
				s.Telemetry.Refused(e, chunk.size())
				return interrupted(c, classify(err), err, l.Start, recorded)
			}
			recorded += chunk.size()
		}
		if errors.Is(readErr, io.EOF) {
			return request.Respond(c, bulkResponse{Recorded: recorded})
		}
		if readErr != nil {
			return interrupted(c, classify(readErr), readErr, l.Number, recorded)
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
func (s *server) readChunk(c echo.Context, e telemetry.Event, namespace string, l *request.Lines, chunk *batch) error {
	l.BeginChunk()
	now, err := s.Store.Now(c.Request().Context())
	if err != nil {
		return err
	}
	for chunk.size() < maxChunk {
		line, err := l.Next()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var i request.Item
			if err := request.Unmarshal(line, &i, strict); err != nil {
				return err
			}
			if err := l.Keep(memoryOf(i)); err != nil {
				return err
			}
			if err := chunk.add(e, namespace, i.User, i.Event, now); err != nil {
				return err
			}
		}
		if !l.Waiting() {
			break
		}
	}
	return nil
}

// memoryOf returns how many bytes an item takes until it is recorded.
func memoryOf(i request.Item) int {
	size := lineMemory + len(i.User)
	if i.Device != nil || i.After != "" {
		size += extraMemory
	}
	if i.Device != nil {
		size += len(i.Device.ID) + len(i.Device.Meta)
	}
	return size
}
