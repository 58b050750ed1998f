package api

import (
	"context"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	maxItems      = 10_000 // of one bulk request in JSON
	maxItemErrors = 20     // bad items that an answer names
)

// recordFunc is one of the store's two ways of recording assertions.
type recordFunc func(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error)

// item is one ping or leave of many.
type item struct {
	User      string `json:"user" minLength:"1" maxLength:"256"`
	assertion `json:",inline"`
} // @name BatchItem

// pingsBody is the JSON of many pings.
type pingsBody struct {
	Pings *[]item `json:"pings"`
} // @name PingBatch

// leavesBody is the JSON of many leaves.
type leavesBody struct {
	Leaves *[]item `json:"leaves"`
} // @name LeaveBatch

// sighting checks an item.
func (i item) sighting(now lastseen.Instant) (store.Sighting, *apiError) {
	if err := lastseen.CheckUser(i.User); err != nil {
		return store.Sighting{}, newError(codeInvalidUser, sentence(err))
	}
	at, err := parseAt(i.At, now)
	if err != nil {
		return store.Sighting{}, classify(err)
	}
	return store.Sighting{User: i.User, At: at}, nil
}

// recordedAnswer says how many items were accepted, superseded ones included.
type recordedAnswer struct {
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
// @Success 200 {object} recordedAnswer "The number of events recorded."
// @Router /v1/namespaces/{namespace}/pings [post]
func (s *server) pings(c echo.Context, _ query) error {
	var body pingsBody
	return s.bulk(c, s.store.Ping, &body, func() (*[]item, string) { return body.Pings, "pings" })
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
// @Success 200 {object} recordedAnswer "The number of events recorded."
// @Router /v1/namespaces/{namespace}/leaves [post]
func (s *server) leaves(c echo.Context, _ query) error {
	var body leavesBody
	return s.bulk(c, s.store.Leave, &body, func() (*[]item, string) { return body.Leaves, "leaves" })
}

// bulk records many assertions: a stream of lines, or one JSON object, whose items are found once
// it is decoded into a value.
func (s *server) bulk(c echo.Context, record recordFunc, into any, items func() (*[]item, string)) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	media, err := mediaType(c)
	if err != nil {
		return err
	}
	if media == mediaNDJSON {
		return s.recordLines(c, namespace, record)
	}
	body := s.body(c, maxBody)
	defer body.close()
	if err := body.readList(into, itemList); err != nil {
		return err
	}
	found, field := items()
	if found == nil {
		return errorf(codeInvalidJSON, "The field %s is missing.", field)
	}
	return s.recordItems(c, namespace, record, *found)
}

// recordItems records all items, or none if one of them is bad.
func (s *server) recordItems(c echo.Context, namespace string, record recordFunc, items []item) error {
	ctx := c.Request().Context()
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	batch := make([]store.Sighting, len(items))
	var bad itemErrors
	for i, item := range items {
		sighting, err := item.sighting(now)
		if err != nil {
			bad.add(i, err)
		}
		batch[i] = sighting
	}
	if err := bad.err(); err != nil {
		return err
	}
	if _, err := record(ctx, namespace, batch); err != nil {
		return err
	}
	return answer(c, recordedAnswer{Recorded: len(batch)})
}

// itemErrors collects what is wrong with the items of a batch.
type itemErrors struct {
	code  code // of the first
	items []itemError
	total int
}

func (e *itemErrors) add(index int, err *apiError) {
	if e.total == 0 {
		e.code = err.code
	}
	e.total++
	if len(e.items) < maxItemErrors {
		e.items = append(e.items, itemError{Index: index, Detail: err.detail})
	}
}

// err returns one error for all, or nil if there was none.
func (e *itemErrors) err() error {
	if e.total == 0 {
		return nil
	}
	wrong := fmt.Sprintf("%d invalid items, the first at", e.total)
	if e.total == 1 {
		wrong = "1 invalid item, at"
	}
	err := errorf(e.code, "%s index %d: %s The request had no effect.", wrong, e.items[0].Index, e.items[0].Detail)
	err.items = e.items
	return err
}
