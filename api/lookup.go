package api

import (
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

const (
	maxLookup      = 1000 // users of one lookup
	maxLookupQuery = 100  // users of one lookup by GET
)

// lookup answers with the presence of the users in the body.
func (s *server) lookup(c echo.Context, q query) error {
	var body struct {
		Users *[]string `json:"users"`
	}
	if err := requireJSON(c, &body); err != nil {
		return err
	}
	if body.Users == nil {
		return newError(codeInvalidJSON, "The field users is missing.")
	}
	return s.lookupUsers(c, q, *body.Users, maxLookup)
}

// lookupQuery answers with the presence of the users in the query, for callers who can only GET.
func (s *server) lookupQuery(c echo.Context, q query) error {
	if len(q["user"]) == 0 {
		return newError(codeInvalidParameter, "The parameter user is missing; repeat it for each user.")
	}
	return s.lookupUsers(c, q, q["user"], maxLookupQuery)
}

func (s *server) lookupUsers(c echo.Context, q query, users []string, most int) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	if len(users) > most {
		return errorf(codeTooManyItems, "%d users are asked for; at most %d are allowed here.", len(users), most)
	}
	var bad itemErrors
	for i, user := range users {
		if err := lastseen.CheckUser(user); err != nil {
			bad.add(i, newError(codeInvalidUser, sentence(err)))
		}
	}
	if err := bad.err(); err != nil {
		return err
	}
	asOf, thresholds, err := s.evaluation(c, namespace, q)
	if err != nil {
		return err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, users)
	if err != nil {
		return err
	}
	found := make([]presence, len(users))
	for i, user := range users {
		found[i] = presenceOf(thresholds.Presence(user, states[i], asOf))
	}
	return answer(c, usersAnswer{AsOf: timestamp(asOf), Users: found})
}
