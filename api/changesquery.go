package api

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
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
func readChangesQuery(c echo.Context, q query, maxUsers int, events bool) (asked changesQuery, err error) {
	if asked.namespace, err = pathNamespace(c); err != nil {
		return asked, err
	}
	r := paramReader{query: q}
	asked.limit = r.number("limit", 1, maxLimit, maxLimit)
	asked.wait = r.wait()
	asked.Statuses = r.statuses()
	asked.NoSnapshot = r.choice("snapshot", "all", "none") == "none"
	if r.err != nil {
		return asked, r.err
	}
	users, named := q["user"]
	if err := checkUsers(users, maxUsers); err != nil {
		return asked, err
	}
	owner, ofContacts := q.get("contacts_of")
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
	cursor, continues := q.get("cursor")
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
	return readUser.check(namespace, owner, caller)
}

// wait returns the parameter wait: 0 for none.
func (r *paramReader) wait() time.Duration {
	return readParam(r, "wait", 0, func(text string) (time.Duration, error) {
		if text == "0" || text == "0s" {
			return 0, nil
		}
		d, err := lastseen.ParseDuration(text)
		switch {
		case err != nil:
			return 0, problem.Errorf(problem.InvalidDuration, "wait: %v.", err)
		case d > maxWait:
			return 0, problem.Errorf(problem.InvalidDuration, "Invalid wait %.40q: use at most %s.", text, maxWait)
		}
		return d, nil
	})
}

// acceptsEvents reports whether the Accept headers of a request ask for a stream of events: they name its media type,
// and do not prefer JSON. Other clients accept anything, and get JSON. It ignores malformed items.
func acceptsEvents(headers []string) bool {
	events, others := 0, 0 // weights in thousandths
	for _, header := range headers {
		for media := range strings.SplitSeq(header, ",") {
			name, _, _ := strings.Cut(media, ";")
			last := media[strings.LastIndexByte(media, ';')+1:]
			if key, _, _ := strings.Cut(last, "="); !strings.EqualFold(strings.TrimSpace(key), "q") {
				last = "" // such as a charset
			}
			q, ok := weight(last)
			if !ok {
				continue
			}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, transport.MediaType):
				events = max(events, q)
			case strings.EqualFold(name, mediaJSON):
				others = max(others, q)
			}
		}
	}
	return events > 0 && events >= others
}

// scalar is the text of a JSON string or number, which is read as a parameter of the same name is.
type scalar string

// decodeScalar decodes a scalar.
func decodeScalar(d *jsontext.Decoder, s *scalar) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if kind := token.Kind(); kind != '"' && kind != '0' {
		return wrongType(d, token, "a string or a number")
	}
	*s = scalar(token.String())
	return nil
}
