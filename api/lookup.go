package api

import (
	"fmt"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

const (
	maxLookup      = 1000 // users of one lookup
	maxLookupQuery = 100  // users of one lookup by GET
)

// lookupBody names those to look up.
type lookupBody struct {
	Users *[]string `json:"users"`
} // @name LookupRequest

// lookup answers with the presence of the users in the body.
//
// @ID lookupUsers
// @Tags Reading
// @Summary Look up many users
// @Description Looks up at most 1,000 users, in a body of at most 512 KiB. The response lists them in the order of the
// @Description request, duplicates included. Users never seen are grey. Requires the scope `read`.
// @Param namespace path string true "namespace"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param body body lookupBody true "The users to look up."
// @Success 200 {object} usersAnswer "The presence of each user, in the order of the request."
// @Router /v1/namespaces/{namespace}/lookup [post]
func (s *server) lookup(c echo.Context, q query) error {
	var asked lookupBody
	body := s.body(c, maxLookupBody)
	defer body.close()
	if err := body.readList(&asked, lookupList); err != nil {
		return err
	}
	if asked.Users == nil {
		return newError(codeInvalidJSON, "The field users is missing.")
	}
	found, err := s.lookupUsers(c, q, *asked.Users, maxLookup)
	if err != nil {
		return err
	}
	return answer(c, found)
}

// lookupQuery answers with the presence of the users in the query, for callers who can only GET.
//
// @ID lookupUsersByQuery
// @Tags Reading
// @Summary Look up several users by GET
// @Description For caches, and for clients that can only send GET requests. Looks up at most 100 users. Requires the
// @Description scope `read`.
// @Param namespace path string true "namespace"
// @Param user query []string true "users"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {object} usersAnswer "The presence of each user, in the order of the request."
// @Success 304 "Not modified since the response that `If-None-Match` names."
// @Router /v1/namespaces/{namespace}/lookup [get]
func (s *server) lookupQuery(c echo.Context, q query) error {
	if len(q["user"]) == 0 {
		return newError(codeInvalidParameter, "The parameter user is missing. Repeat it for each user.")
	}
	found, err := s.lookupUsers(c, q, q["user"], maxLookupQuery)
	if err != nil {
		return err
	}
	found.Hint = commaHint(found.Users)
	return answerCached(c, found, found.evaluated, found.Users...)
}

// commaHint returns a hint for the first user with a comma in its ID that was never seen: the caller may have meant
// several users. It returns "" if there is no such user. Commas are allowed in IDs, so this is not an error.
func commaHint(users []presence) string {
	for _, u := range users {
		if u.LastSeen == 0 && strings.Contains(u.User, ",") {
			return fmt.Sprintf("%.40q was looked up as one user and was never seen. "+
				"To look up several users, repeat the parameter: user=a&user=b.", u.User)
		}
	}
	return ""
}

// lookupUsers finds the presence of the users, of whom there may be so many at most.
func (s *server) lookupUsers(c echo.Context, q query, users []string, most int) (found usersAnswer, err error) {
	namespace, err := namespaceOf(c)
	if err != nil {
		return found, err
	}
	if len(users) > most {
		return found, errorf(codeTooManyItems, "There are %d users: send at most %d in one request.", len(users), most)
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
	asOf, thresholds, err := s.evaluate(c, namespace, q)
	if err != nil {
		return found, err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, users)
	if err != nil {
		return found, err
	}
	found.presences = presences{evaluatedAt(asOf, thresholds), make([]presence, len(users))}
	for i, user := range users {
		found.Users[i] = presenceOf(thresholds.Presence(user, states[i], asOf))
	}
	return found, nil
}
