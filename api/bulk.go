package api

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
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
func (s *server) pings(c echo.Context, _ query, namespace string) error {
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
func (s *server) leaves(c echo.Context, _ query, namespace string) error {
	var body leavesBody
	return s.bulk(c, namespace, telemetry.Leave, &body, &body.Leaves, "leaves")
}

// bulk records many events: a stream of lines, or JSON that is decoded into a value. The list is its field.
func (s *server) bulk(
	c echo.Context, namespace string, e telemetry.Event, into any, list **[]item, field string,
) error {
	media, err := mediaType(c)
	if err != nil {
		return err
	}
	if media == mediaNDJSON {
		return s.recordLines(c, e, namespace)
	}
	body := s.body(c, maxBody)
	defer body.release()
	if err := body.readList(into, itemMemory); err != nil {
		return err
	}
	if *list == nil {
		return problem.Errorf(problem.InvalidJSON, "The field %s is missing.", field)
	}
	return s.recordItems(c, e, namespace, **list)
}

// recordItems records all items, or none if one of them is invalid.
func (s *server) recordItems(c echo.Context, e telemetry.Event, namespace string, items []item) error {
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	b := batch{plain: make([]store.Sighting, 0, len(items))}
	var bad itemErrors
	for i, item := range items {
		if err := b.add(e, namespace, item.User, item.assertion, now); err != nil {
			bad.add(i, err)
		}
	}
	if err = bad.err(); err == nil {
		_, err = s.record(ctx, e, namespace, &b)
	}
	if err != nil {
		s.Telemetry.Refused(e, len(items))
		return err
	}
	return respond(c, bulkResponse{Recorded: len(items)})
}

// maxItemErrors is the number of invalid items that an error names.
const maxItemErrors = 20

// item is one ping or leave of many.
type item struct {
	User      string `json:"user" minLength:"1" maxLength:"256"`
	assertion `json:",inline"`
} // @name BatchItem

// itemErrors collects the errors of the items of a request.
type itemErrors struct {
	code  problem.Code // of the first
	items []problem.Item
	total int
}

func (e *itemErrors) add(index int, err *problem.Error) {
	if e.total == 0 {
		e.code = err.Code
	}
	e.total++
	if len(e.items) < maxItemErrors {
		e.items = append(e.items, problem.Item{Index: index, Detail: err.Detail})
	}
}

// err returns one error for all items, or nil if all are valid.
func (e *itemErrors) err() error {
	if e.total == 0 {
		return nil
	}
	wrong, first := "1 invalid item, at", e.items[0]
	if e.total > 1 {
		wrong = fmt.Sprintf("%d invalid items, the first at", e.total)
	}
	detail := fmt.Sprintf("%s index %d: %s The request had no effect.", wrong, first.Index, first.Detail)
	return &problem.Error{Code: e.code, Detail: detail, Items: e.items}
}

// atIndex adds the index of an item to an error for the caller.
func atIndex(index int, err error) error {
	known, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	var bad itemErrors
	bad.add(index, known)
	return bad.err()
}
