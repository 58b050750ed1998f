package api

import (
	"github.com/labstack/echo/v4"

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

// pings records many pings.
//
// @ID recordPings
// @Tags Recording
// @Summary Record many pings
// @Description JSON: at most 10,000 pings and 1 MiB, recorded all or none. If an item is invalid, nothing is recorded,
// @Description and `errors` lists the first 20 invalid items by index.
// @Description
// @Description NDJSON: a stream of any length with one ping per line of at most 4 KiB, recorded as it arrives. Lines
// @Description before an invalid line stay recorded; the error has the number of that line and the number of pings
// @Description recorded. The caller is authorized again before each chunk. After a 503, some pings may be recorded. It
// @Description is safe to send all of them again. Requires the scope `ping`; a user's token is not enough.
// @Param namespace path string true "namespace"
// @Param body body pingsBody true "The pings."
// @Success 200 {object} bulkResponse "The number of events recorded."
// @Router /v1/namespaces/{namespace}/pings [post]
func (s *server) pings(c echo.Context, _ request.Query, namespace string) error {
	var body pingsBody
	return s.bulk(c, namespace, telemetry.Ping, &body, &body.Pings, "pings")
}

// leaves records many leaves.
//
// @ID recordLeaves
// @Tags Recording
// @Summary Record many leaves
// @Description Follows the same rules as recording many pings. A server that shuts down can record a leave for each of
// @Description its users in one request. Requires the scope `ping`; a user's token is not enough.
// @Param namespace path string true "namespace"
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
		if err := b.add(e, namespace, item.User, item.assertion, now); err != nil {
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
	assertion `json:",inline"`
} // @name BatchItem
