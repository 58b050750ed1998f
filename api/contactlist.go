package api

import (
	"context"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// contactsParams are the parameters of a list of contacts. The first page fixes them for all pages.
type contactsParams struct {
	view
	statuses  []lastseen.Status // none means all
	inCall    string            // "true" or "false"; "" means both
	canonical string            // the query that asks for this list: see [listParams]
}

func readContactsParams(q request.Query, defaults view) (contactsParams, error) {
	r, p := request.Params{Query: q}, contactsParams{}
	p.asOf = r.Time("as_of", defaults.asOf)
	p.thresholds = r.Thresholds(defaults.thresholds)
	r.Canonical = p.evaluation()
	p.statuses = r.Statuses()
	p.inCall = r.Bool("in_call")
	p.canonical = r.Canonical
	return p, r.Err
}

// listContacts returns one page of the contacts of a user.
//
// @ID listContacts
// @Tags Contacts
// @Summary List a user's contacts with their presence
// @Description Returns a page of the contacts, ordered by the bytes of their IDs. Contacts never seen are grey. With
// @Description `status`, the page has only contacts with one of these statuses; with `in_call`, only those who are in a call, or
// @Description only those who are not. With either of them, each further 1,000 contacts that are read count as one more
// @Description request against rate limits.
// @Description
// @Description To get all pages, pass the `next_cursor` of each response as the `cursor` of the next request until it
// @Description is null. The first page fixes `as_of`. Contacts that are added or removed meanwhile may be missing. With a
// @Description cursor, `limit` can change; omit the other parameters or repeat them unchanged. Requires the scope `ping`, for
// @Description API keys also `read`, or the user's own token.
// @Description
// @Description With the setting `visibility: contacts`, the user's own token gets contacts as never seen, unless they have
// @Description the user among their contacts.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param status query []string false "statuses"
// @Param in_call query boolean false "in a call"
// @Param limit query integer false "maximum of a page"
// @Param cursor query string false "position"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Success 200 {object} listResponse "A page."
// @Router /v1/namespaces/{namespace}/users/{user}/contacts [get]
func (s *server) listContacts(c echo.Context, q request.Query, namespace, user string) error {
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	p, after, err := s.contactsParams(ctx, namespace, user, q)
	if err != nil {
		return err
	}
	users, last, err := s.readContactsPage(c, namespace, user, p, after, limit)
	if err != nil {
		return err
	}
	var next *string
	if last != "" {
		next = new(p.cursor(namespace, user, last))
	}
	return request.Respond(c, listResponse{presences{p.evaluated(), users}, next})
}

// contactsParams returns the parameters of the list that a query asks for, and the contact before its page; "" for the
// first page.
func (s *server) contactsParams(
	ctx context.Context, namespace, user string, q request.Query,
) (p contactsParams, after string, err error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return p, "", err
	}
	if cursor, given := q.Get("cursor"); given {
		p, after, err = openContactsCursor(namespace, user, cursor, q)
	} else {
		p, err = readContactsParams(q, view{thresholds: s.settings(namespace).Thresholds, asOf: now})
	}
	p.now = now
	return p, after, err
}

// readContactsPage returns up to limit contacts after one, and the contact before the next page; "" if there is none.
// It reads on until the page is full, but not more contacts than a user can have: then they changed meanwhile, and the
// next page continues. Each read but the first is charged like another lookup.
func (s *server) readContactsPage(
	c echo.Context, namespace, user string, p contactsParams, after string, limit int,
) (users []presence, last string, err error) {
	size := request.MaxUsers
	if p.hasAll() {
		size = limit + 1 // one more shows whether there is a next page
	}
	ctx, seen := c.Request().Context(), s.storeFor(c, namespace)
	users = []presence{}
	for read := 0; read <= store.MaxContacts; {
		if read > 0 {
			if err := s.limiter.Charge(c.Request(), callerOf(c), 1); err != nil {
				return nil, "", err
			}
		}
		contacts, err := s.Store.ListContacts(ctx, namespace, user, after, size)
		if err != nil {
			return nil, "", err
		}
		shown, err := showContacts(ctx, seen, namespace, contacts, p)
		if err != nil {
			return nil, "", err
		}
		if users = append(users, shown...); len(users) > limit {
			return users[:limit], users[limit-1].User, nil
		}
		if len(contacts) < size {
			return users, "", nil
		}
		read += len(contacts)
		after = contacts[len(contacts)-1]
	}
	return users, after, nil
}

// hasAll reports whether the list has all contacts.
func (p contactsParams) hasAll() bool { return len(p.statuses) == 0 && p.inCall == "" }

// has reports whether the list has a contact.
func (p contactsParams) has(u presence) bool {
	inCall := u.userDetails != nil && u.InCall
	return (len(p.statuses) == 0 || slices.Contains(p.statuses, u.Status)) &&
		(p.inCall == "" || p.inCall == strconv.FormatBool(inCall))
}

// showContacts returns the presences of those contacts that a list has.
func showContacts(
	ctx context.Context, users audience.Users, namespace string, contacts []string, p contactsParams,
) ([]presence, error) {
	if len(contacts) == 0 {
		return nil, nil
	}
	states, details, err := users.Describe(ctx, namespace, contacts)
	if err != nil {
		return nil, err
	}
	shown := make([]presence, 0, len(contacts))
	for i, contact := range contacts {
		if u := p.presence(contact, states[i], details); p.has(u) {
			shown = append(shown, u)
		}
	}
	return shown, nil
}

// contactsList names the list of a user's contacts, as cursors are bound to it. No name contains a NUL.
func contactsList(namespace, user string) string { return namespace + "\x00" + user }

// cursor returns the cursor of the page after a contact.
func (p contactsParams) cursor(namespace, user, last string) string {
	return request.SealCursor(contactsList(namespace, user), []byte(p.canonical+"\x00"+last))
}

// openContactsCursor returns the parameters of the list and the contact in a cursor: see [request.OpenListCursor].
func openContactsCursor(
	namespace, user, cursor string, q request.Query,
) (p contactsParams, after string, err error) {
	read := func(q request.Query) (string, error) {
		p, err = readContactsParams(q, view{})
		return p.canonical, err
	}
	last, err := request.OpenListCursor(contactsList(namespace, user), cursor, q, read)
	if err == nil && lastseen.CheckStoredUser(string(last)) != nil {
		err = request.ErrListCursor()
	}
	return p, string(last), err
}
