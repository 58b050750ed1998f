package api

import (
	"context"
	"errors"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// getUser returns the presence of a user.
//
// @ID getUser
// @Tags Reading
// @Summary Look up one user
// @Description A user never seen is not an error: they are grey, and `last_seen` is null. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets another user as never seen, unless the other
// @Description user has the token's user among their contacts.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {object} userResponse "The presence of the user."
// @Success 304 "Not modified since the response that `If-None-Match` names."
// @Router /v1/namespaces/{namespace}/users/{user} [get]
func (s *server) getUser(c echo.Context, q query) error {
	v, p, err := s.lookUp(c, q)
	if err != nil {
		return err
	}
	response := userResponse{presence: p, evaluated: v.evaluated()}
	return respondCached(c, response, v, response.presence)
}

// lookUp returns the presence of the user in the path, in the view that a query asks for.
func (s *server) lookUp(c echo.Context, q query) (v view, p presence, err error) {
	namespace, user, err := pathNames(c)
	if err != nil {
		return v, p, err
	}
	if v, err = s.view(c, namespace, q); err != nil {
		return v, p, err
	}
	states, details, err := s.readerFor(c, namespace).Describe(c.Request().Context(), namespace, []string{user})
	if err != nil {
		return v, p, err
	}
	return v, v.presence(user, states[0], details), nil
}

// deleteUser deletes a user.
//
// @ID deleteUser
// @Tags Deleting
// @Summary Delete a user
// @Description Deletes a user, with their devices, contacts and calls, from all responses at once. The deletion survives a
// @Description crash. Deleting an unknown user is not an error. The user's connections are closed within a second, on all
// @Description servers. The next ping makes the user known again. Requires the scope `admin`.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Success 204 "Deleted."
// @Router /v1/namespaces/{namespace}/users/{user} [delete]
func (s *server) deleteUser(c echo.Context, _ query) error {
	namespace, err := pathNamespace(c)
	if err != nil {
		return err
	}
	user, err := pathName(c, "user", lastseen.CheckStoredUser, codeInvalidUser)
	if err != nil {
		return err
	}
	// First: a server that writes what it heard on connections reads before which of them to close, so that the user
	// does not come back by what is heard until they are closed. Only a write that is on its way to the store at this
	// moment can come after the deletion. It makes the user known again, as a ping does that comes a moment later.
	if err := s.Store.CloseConnections(c.Request().Context(), namespace, user); err != nil {
		return err
	}
	return s.saveContacts(c, namespace, user, 0, func(ctx context.Context) error {
		return s.forget(ctx, namespace, user) // and with the user, their contacts
	})
}

// forget deletes a user, and has the connections of the other party of the user's call learn that the call is over.
func (s *server) forget(ctx context.Context, namespace, user string) error {
	found, err := s.Store.ReadCalls(ctx, namespace, []string{user})
	if err != nil && !errors.Is(err, store.ErrNoCalls) {
		return err
	}
	err = s.Store.Forget(ctx, namespace, user)
	if !store.MayBeDone(err) {
		return err
	}
	s.signalChange(ctx, store.Signal{Kind: signalDeleted, Namespace: namespace, User: user},
		"callers of the user can have to wait as after calls that were not answered")
	for _, c := range found {
		other := c.From
		if other == user {
			other = c.To
		}
		if other != "" { // as in the empty call of a user without one
			s.signalChange(ctx, calls.Signal(namespace, c.ID, other),
				"the other party learns later that the call is over")
		}
	}
	return err
}
