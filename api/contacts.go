package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// contactIDs are users in the body of a request: see [strict].
type contactIDs []string

// contactsForm is the form of contacts in a body.
var contactsForm = request.Form{Max: lookupForm.Max, Items: 2 * store.MaxContacts, Sign: ',', Each: 160}

// contactsBody is the JSON of a contact list.
type contactsBody struct {
	Users *contactIDs `json:"users" swaggertype:"array,string"`
} // @name ContactsRequest

// contactChangesBody is the JSON of changes to a contact list.
type contactChangesBody struct {
	// The users to add.
	Add contactIDs `json:"add" swaggertype:"array,string" validate:"optional"`
	// The users to remove. A user in both lists is removed.
	Remove contactIDs `json:"remove" swaggertype:"array,string" validate:"optional"`
} // @name ContactChangesRequest

// @ID setContacts
// @Summary Replace a user's contacts
// @Description Replaces the user's contacts by at most 5,000 users, in a body of at most 512 KiB. They need not have been
// @Description seen. An ID that is listed twice counts once. Contacts have a direction: that bob is a contact of alice does
// @Description not make alice a contact of bob. They are kept until they are removed or the user is deleted.
// @Description With the setting `visibility: contacts`, they also decide which users' tokens see the user: those of the
// @Description contacts.
// @Description
// @Description The last request counts. A large change is made in parts, removals first. If another request changes the
// @Description contacts meanwhile, this one stops with 409 `contacts_changed`, and part of its change was made; after another
// @Description error, part of it may have been made. Each 500 contacts count as a request against rate limits.
// @Description
// @Description Requires the scope `ping` or the user's own token.
// @Param body body contactsBody true "The contacts."
// @Success 204 "Replaced."
// @Router /v1/namespaces/{namespace}/users/{user}/contacts [put]
func (s *server) setContacts(c echo.Context, _ request.Query, namespace, user string) error {
	var sent contactsBody
	hold := s.hold(c)
	defer hold.Release()
	if err := contactsForm.Read(c, hold, &sent, strict); err != nil {
		return err
	}
	if sent.Users == nil {
		return problem.New(problem.InvalidJSON, "The field users is missing.")
	}
	if err := checkContacts(user, *sent.Users, lastseen.CheckUser); err != nil {
		return err
	}
	return s.saveContacts(c, len(*sent.Users), func(ctx context.Context) error {
		return s.Store.SetContacts(ctx, namespace, user, *sent.Users)
	})
}

// @ID changeContacts
// @Summary Add and remove contacts of a user
// @Description Adds and removes contacts, in a body of at most 512 KiB. Adding a user who is a contact, or removing one who is
// @Description not, is not an error. A user has at most 5,000 contacts. Up to 500 changes are all made, or none. More are
// @Description made in parts like those of `PUT`, with the same errors and the same cost.
// @Description
// @Description With the setting `visibility: contacts`, a contact who is removed does not see the user any longer.
// @Description Requires the scope `ping` or the user's own token.
// @Param body body contactChangesBody true "The changes."
// @Success 204 "Changed."
// @Router /v1/namespaces/{namespace}/users/{user}/contacts [patch]
func (s *server) changeContacts(c echo.Context, _ request.Query, namespace, user string) error {
	var sent contactChangesBody
	hold := s.hold(c)
	defer hold.Release()
	if err := contactsForm.Read(c, hold, &sent, strict); err != nil {
		return err
	}
	err := cmp.Or(checkContacts(user, sent.Add, lastseen.CheckUser),
		checkContacts(user, sent.Remove, lastseen.CheckStoredUser))
	if err != nil {
		return err
	}
	named := len(sent.Add) + len(sent.Remove)
	if named == 0 {
		return respondNothing(c, nil)
	}
	return s.saveContacts(c, named, func(ctx context.Context) error {
		return s.Store.ChangeContacts(ctx, namespace, user, sent.Add, sent.Remove)
	})
}

// @ID deleteContacts
// @Summary Remove all contacts of a user
// @Description The user stays in the contacts of others. That the user has no contacts is not an error. With the setting
// @Description `visibility: contacts`, no other user's token sees the user any longer. Requires the scope `ping` or the
// @Description user's own token.
// @Success 204 "Removed."
// @Router /v1/namespaces/{namespace}/users/{user}/contacts [delete]
func (s *server) deleteContacts(c echo.Context, _ request.Query, namespace, user string) error {
	return s.saveContacts(c, 0, func(ctx context.Context) error {
		return s.Store.SetContacts(ctx, namespace, user, nil)
	})
}

// contactsPerRequest is how many contacts a change names for each request that it is charged as.
const contactsPerRequest = 500

// saveContacts changes the contacts of a user by a request that names some, and responds.
func (s *server) saveContacts(c echo.Context, named int, save func(context.Context) error) error {
	if named > contactsPerRequest { // the request was charged as one
		if err := s.gate.Charge(c, (named-1)/contactsPerRequest); err != nil {
			return err
		}
	}
	return respondNothing(c, save(c.Request().Context()))
}

// checkContacts returns an error unless all IDs can be contacts of a user, by one of the checks of package lastseen.
func checkContacts(user string, contacts []string, check func(string) error) error {
	return request.CheckEach(contacts, func(contact string) error {
		if contact == user {
			return cmp.Or(check(contact), store.ErrOwnContact)
		}
		return check(contact)
	})
}

// @ID listContacts
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
// @Param status query []string false "statuses"
// @Param in_call query boolean false "in a call"
// @Param limit query integer false "maximum of a page"
// @Param cursor query string false "position"
// @Param as_of query string false "time of evaluation"
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
		next = new(p.cursor(contactsList(namespace, user), []byte(last)))
	}
	return request.Respond(c, listResponse{presences{p.evaluated(), users}, next})
}

// contactsParams returns the parameters of the list that a query asks for, and the contact before its page; "" for the
// first page.
func (s *server) contactsParams(
	ctx context.Context, namespace, user string, q request.Query,
) (p listParams, after string, err error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return p, "", err
	}
	if cursor, given := q.Get("cursor"); given {
		var last []byte
		p, last, err = openListCursor(contactsList(namespace, user), cursor, q)
		if after = string(last); err == nil && lastseen.CheckStoredUser(after) != nil {
			err = request.ErrListCursor()
		}
	} else {
		p, err = readListParams(q, view{thresholds: s.settings(namespace).Thresholds, asOf: now})
	}
	p.now = now
	return p, after, err
}

// readContactsPage returns up to limit contacts after one, and the contact before the next page; "" if there is none.
// It reads on until the page is full, but not more contacts than a user can have: then they changed meanwhile, and the
// next page continues. Each read but the first is charged like another lookup.
func (s *server) readContactsPage(
	c echo.Context, namespace, user string, p listParams, after string, limit int,
) (users []presence, last string, err error) {
	size := request.MaxUsers
	if p.hasAll() {
		size = limit + 1 // one more shows whether there is a next page
	}
	ctx, seen := c.Request().Context(), s.storeFor(c, namespace)
	users = []presence{}
	for read := 0; read <= store.MaxContacts; {
		if read > 0 {
			if err := s.gate.Charge(c, 1); err != nil {
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

// hasAll reports whether a list of contacts has all of them.
func (p listParams) hasAll() bool { return len(p.statuses) == 0 && p.inCall == "" }

// has reports whether a list of contacts has one.
func (p listParams) has(u presence) bool {
	inCall := u.userDetails != nil && u.InCall
	return (len(p.statuses) == 0 || slices.Contains(p.statuses, u.Status)) &&
		(p.inCall == "" || p.inCall == strconv.FormatBool(inCall))
}

// showContacts returns the presences of those contacts that a list has.
func showContacts(
	ctx context.Context, users audience.Users, namespace string, contacts []string, p listParams,
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
