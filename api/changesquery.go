package api

import (
	"encoding/binary"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// changesQuery is a request for changes.
type changesQuery struct {
	feed.Query // of nobody if contacts are followed
	namespace  string
	contactsOf string        // the user whose contacts are followed; empty if others are
	cursor     string        // where it continues; empty if it begins
	limit      int           // of users in a batch, except one that has all users followed
	wait       time.Duration // for a batch
}

// lastEventID is the header in which a client repeats the last event ID of a stream that ended.
const lastEventID = "Last-Event-ID"

// readChangesQuery reads a request for the changes of up to maxUsers users, of the contacts of one, or of everyone. For
// a stream of events, Last-Event-ID replaces the cursor: a browser that connects again repeats the query of its first
// request.
func readChangesQuery(c echo.Context, q request.Query, maxUsers int, events bool) (asked changesQuery, err error) {
	if asked.namespace, err = request.Namespace(c); err != nil {
		return asked, err
	}
	r := request.Params{Query: q}
	asked.limit = r.Number("limit", 1, request.MaxLimit, request.MaxLimit)
	asked.wait = r.Wait(maxWait)
	asked.Statuses = r.Statuses()
	asked.NoSnapshot = r.Choice("snapshot", "all", "none") == "none"
	if r.Err != nil {
		return asked, r.Err
	}
	users, named := q["user"]
	if err := checkUsers(users, maxUsers); err != nil {
		return asked, err
	}
	owner, ofContacts := q.Get("contacts_of")
	switch {
	case named && ofContacts:
		return asked, problem.New(problem.InvalidParameter, "Use either users or contacts_of.")
	case ofContacts:
		if err := lastseen.CheckUser(owner); err != nil {
			detail := problem.From(problem.InvalidUser, err).Detail
			return asked, problem.New(problem.InvalidUser, "contacts_of: "+detail)
		}
	}
	asked.Users, asked.contactsOf, asked.Everyone = users, owner, !named && !ofContacts
	if !asked.Everyone && (asked.NoSnapshot || asked.Statuses != nil) {
		return asked, problem.New(problem.InvalidParameter, "Use status and snapshot only to follow everyone.")
	}
	cursor, continues := q.Get("cursor")
	if id := c.Request().Header.Get(lastEventID); events && id != "" {
		cursor, continues = id, true
	}
	if continues {
		asked.cursor = cursor
		asked.After, err = openChangesCursor(asked.namespace, cursor)
	}
	return asked, err
}

// checkContactsOf returns an error unless a caller can follow the contacts of a user: callers who can list them can.
// The owner "" stands for no contacts.
func checkContactsOf(namespace, owner string, caller *auth.Caller) error {
	if owner == "" {
		return nil
	}
	return guard.ReadUser.Check(namespace, owner, caller)
}

// scalar is the text of a JSON string or number, which is read as a parameter of the same name is.
type scalar string

const (
	maxChangesCursor = 16 << 10 // bytes of text; more than those of any store
	maxPlaces        = 64 + 1   // shards of a namespace, and the place of a scan
)

// changesCursor returns the cursor of places in the changes feed of a namespace. It names no users.
func changesCursor(namespace string, places []store.Place) string {
	content := binary.AppendUvarint(nil, uint64(len(places)))
	for _, place := range places {
		content = append(binary.AppendUvarint(content, uint64(len(place))), place...)
	}
	return request.SealCursor(changesList(namespace), content)
}

// partCursor returns the cursor of all parts of a batch but the last. It leads to a reset: a client that was cut off in
// between cannot continue from before the batch, since what is undone until it comes back is not sent.
func partCursor(namespace string) string { return changesCursor(namespace, []store.Place{"part"}) }

// openChangesCursor returns the places in a cursor, which is hostile input. The store checks the places themselves: to
// a place that it does not know, it responds with a reset.
func openChangesCursor(namespace, cursor string) ([]store.Place, error) {
	if len(cursor) <= maxChangesCursor {
		content, err := request.OpenCursor(changesList(namespace), cursor)
		if places, ok := cutPlaces(content); ok && err == nil {
			return places, nil
		}
	}
	return nil, problem.New(problem.InvalidCursor, "Invalid cursor for the changes of this namespace. Pass the cursor "+
		"of a response unchanged, or omit it to start over.")
}

func cutPlaces(content []byte) ([]store.Place, bool) {
	count, content, ok := cutUvarint(content)
	if !ok || count == 0 || count > maxPlaces {
		return nil, false
	}
	places := make([]store.Place, count)
	for i := range places {
		length, rest, ok := cutUvarint(content)
		if !ok || length > uint64(len(rest)) {
			return nil, false
		}
		places[i], content = store.Place(rest[:length]), rest[length:]
	}
	return places, len(content) == 0
}

func cutUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

// changesList is what cursors of changes are bound to. It differs from the name of every list, since no namespace
// contains a slash.
func changesList(namespace string) string { return namespace + "/changes" }
