package api

import (
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
} // @name Lookup

// lookup answers with the presence of the users in the body.
//
// @ID lookupUsers
// @Tags Reading
// @Summary Look up many users
// @Description At most 1,000 users. The answer has them in the order asked, also those named twice; users never seen are grey.
// @Description
// @Description Needs the scope `read`.
// @Accept json
// @Produce json
// @Param namespace path string true "namespace"
// @Param as_of query string false "instant of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param body body lookupBody true "Whom to look up."
// @Success 200 {object} usersAnswer "The presences, in the order asked."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_duration, invalid_thresholds, invalid_parameter, unknown_parameter, invalid_json, unknown_field, too_many_items"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 413 {object} problem "body_too_large"
// @Failure 415 {object} problem "unsupported_media_type"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, internal"
// @Failure 503 {object} problem "store_unavailable, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/lookup [post]
func (s *server) lookup(c echo.Context, q query) error {
	var body lookupBody
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
//
// @ID lookupUsersByQuery
// @Tags Reading
// @Summary Look up several users, in a URL
// @Description The same for callers that can only GET, and for caches. At most 100 users.
// @Description
// @Description The answer may be cached for as long as `Cache-Control` says, at most 5 seconds, and never past the first `valid_until`.
// @Description
// @Description Needs the scope `read`.
// @Produce json
// @Param namespace path string true "namespace"
// @Param user query []string true "users" collectionFormat(multi)
// @Param as_of query string false "instant of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an older answer"
// @Success 200 {object} usersAnswer "The presences, in the order asked."
// @Success 304 "Nothing changed since the answer that `If-None-Match` names."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_duration, invalid_thresholds, invalid_parameter, unknown_parameter, too_many_items"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, internal"
// @Failure 503 {object} problem "store_unavailable, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/lookup [get]
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
