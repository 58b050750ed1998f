package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
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
	User string         `json:"user"`
	At   jsontext.Value `json:"at"`
}

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
	Recorded int `json:"recorded"`
}

// pings records many pings.
func (s *server) pings(c echo.Context, _ query) error {
	var body struct {
		Pings *[]item `json:"pings"`
	}
	return s.bulk(c, s.store.Ping, &body, func() (*[]item, string) { return body.Pings, "pings" })
}

// leaves records many leaves.
func (s *server) leaves(c echo.Context, _ query) error {
	var body struct {
		Leaves *[]item `json:"leaves"`
	}
	return s.bulk(c, s.store.Leave, &body, func() (*[]item, string) { return body.Leaves, "leaves" })
}

// bulk records many assertions: a stream of lines, or one JSON object, whose items are found in body
// once it is read.
func (s *server) bulk(c echo.Context, record recordFunc, body any, items func() (*[]item, string)) error {
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
	if err := requireJSON(c, body); err != nil {
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
	if len(items) > maxItems {
		return errorf(codeTooManyItems, "There are %d items; at most %d are allowed at once.", len(items), maxItems)
	}
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
	err := errorf(e.code, "%d items are wrong, the first one at index %d: %s Nothing was done.",
		e.total, e.items[0].Index, e.items[0].Detail)
	err.items = e.items
	return err
}
