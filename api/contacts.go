package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
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

// setContacts replaces the contacts of a user.
//
// @ID setContacts
// @Tags Contacts
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
// @Param namespace path string true "namespace"
// @Param user path string true "user"
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

// changeContacts adds and removes contacts of a user.
//
// @ID changeContacts
// @Tags Contacts
// @Summary Add and remove contacts of a user
// @Description Adds and removes contacts, in a body of at most 512 KiB. Adding a user who is a contact, or removing one who is
// @Description not, is not an error. A user has at most 5,000 contacts. Up to 500 changes are all made, or none. More are
// @Description made in parts like those of `PUT`, with the same errors and the same cost.
// @Description
// @Description With the setting `visibility: contacts`, a contact who is removed does not see the user any longer.
// @Description Requires the scope `ping` or the user's own token.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
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
		return c.NoContent(http.StatusNoContent)
	}
	return s.saveContacts(c, named, func(ctx context.Context) error {
		return s.Store.ChangeContacts(ctx, namespace, user, sent.Add, sent.Remove)
	})
}

// deleteContacts removes all contacts of a user.
//
// @ID deleteContacts
// @Tags Contacts
// @Summary Remove all contacts of a user
// @Description The user stays in the contacts of others. That the user has no contacts is not an error. With the setting
// @Description `visibility: contacts`, no other user's token sees the user any longer. Requires the scope `ping` or the
// @Description user's own token.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
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
		if err := s.limiter.Charge(c.Request(), callerOf(c), (named-1)/contactsPerRequest); err != nil {
			return err
		}
	}
	if err := save(c.Request().Context()); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// checkContacts returns an error unless all IDs can be contacts of a user, by one of the checks of package lastseen.
func checkContacts(user string, contacts []string, check func(string) error) error {
	var bad problem.Items
	for i, contact := range contacts {
		err := check(contact)
		if err == nil && contact == user {
			err = store.ErrOwnContact
		}
		if err != nil {
			bad.Add(i, problem.From(problem.InvalidUser, err))
		}
	}
	return bad.Err()
}
