package api

import (
	"errors"
	"fmt"
)

// maxItemErrors is the number of invalid items that an error names.
const maxItemErrors = 20

// item is one ping or leave of many.
type item struct {
	User      string `json:"user" minLength:"1" maxLength:"256"`
	assertion `json:",inline"`
} // @name BatchItem

// itemErrors collects the errors of the items of a request.
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

// err returns one error for all items, or nil if all are valid.
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

// atIndex adds the index of an item to an error for the caller.
func atIndex(index int, err error) error {
	var known *apiError
	if !errors.As(err, &known) {
		return err
	}
	var bad itemErrors
	bad.add(index, known)
	return bad.err()
}
