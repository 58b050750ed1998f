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
	found, err := s.lookupUsers(c, q, *body.Users, maxLookup)
	if err != nil {
		return err
	}
	return answer(c, found)
}

// lookupQuery answers with the presence of the users in the query, for callers who can only GET.
func (s *server) lookupQuery(c echo.Context, q query) error {
	if len(q["user"]) == 0 {
		return newError(codeInvalidParameter, "The parameter user is missing; repeat it for each user.")
	}
	found, err := s.lookupUsers(c, q, q["user"], maxLookupQuery)
	if err != nil {
		return err
	}
	return answerCached(c, found, found.AsOf, found.Users...)
}

// lookupUsers finds the presence of the users, of whom there may be so many at most.
func (s *server) lookupUsers(c echo.Context, q query, users []string, most int) (found usersAnswer, err error) {
	namespace, err := namespaceOf(c)
	if err != nil {
		return found, err
	}
	if len(users) > most {
		return found, errorf(codeTooManyItems, "%d users are asked for; at most %d are allowed here.", len(users), most)
	}
	var bad itemErrors
	for i, user := range users {
		if err := lastseen.CheckUser(user); err != nil {
			bad.add(i, newError(codeInvalidUser, sentence(err)))
		}
	}
	if err := bad.err(); err != nil {
		return found, err
	}
	asOf, thresholds, err := s.evaluation(c, namespace, q)
	if err != nil {
		return found, err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, users)
	if err != nil {
		return found, err
	}
	found = usersAnswer{AsOf: timestamp(asOf), Users: make([]presence, len(users))}
	for i, user := range users {
		found.Users[i] = presenceOf(thresholds.Presence(user, states[i], asOf))
	}
	return found, nil
}
