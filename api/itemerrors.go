package api

import (
	"errors"
	"fmt"
)

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

// atIndex adds the index of an item to an error of ours.
func atIndex(index int, err error) error {
	var known *apiError
	if !errors.As(err, &known) {
		return err
	}
	var bad itemErrors
	bad.add(index, known)
	return bad.err()
}
