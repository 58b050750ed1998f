package api

import (
	"fmt"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// maxLookupQuery is the number of users of a lookup by GET.
const maxLookupQuery = 100

// lookupForm is the form of a list of users to look up or to follow.
var lookupForm = request.Form{Max: 512 << 10, Items: request.MaxUsers, Sign: ',', Each: 512}

// lookupBody is the JSON of a lookup.
type lookupBody struct {
	Users *[]string `json:"users"`
} // @name LookupRequest

// lookupResponse is the response to a lookup of several users.
type lookupResponse struct {
	presences `json:",inline"`
	// Only in responses to lookups by GET: a likely mistake in the request. Normally absent.
	Hint string `json:"hint,omitzero" validate:"optional"`
} // @name PresenceList

// @ID lookupUsers
// @Summary Look up many users
// @Description Looks up at most 1,000 users, in a body of at most 512 KiB. The response lists them in the order of the
// @Description request, duplicates included. Users never seen are grey. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token sees its own user, and the users who have that user
// @Description among their contacts. It gets all others as never seen.
// @Param as_of query string false "time of evaluation"
// @Param body body lookupBody true "The users to look up."
// @Success 200 {object} lookupResponse "The presence of each user, in the order of the request."
// @Router /v1/namespaces/{namespace}/lookup [post]
func (s *server) lookup(c echo.Context, q request.Query, namespace string) error {
	var asked lookupBody
	hold := s.hold(c)
	defer hold.Release()
	if err := lookupForm.Read(c, hold, &asked, strict); err != nil {
		return err
	}
	if asked.Users == nil {
		return problem.New(problem.InvalidJSON, "The field users is missing.")
	}
	_, found, err := s.lookupUsers(c, q, namespace, *asked.Users, request.MaxUsers)
	if err != nil {
		return err
	}
	return request.Respond(c, found)
}

// @ID lookupUsersByQuery
// @Summary Look up several users by GET
// @Description For caches, and for clients that can only send GET requests. Looks up at most 100 users. Requires the
// @Description scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token sees its own user, and the users who have that user
// @Description among their contacts. It gets all others as never seen.
// @Param user query []string true "users"
// @Param as_of query string false "time of evaluation"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {object} lookupResponse "The presence of each user, in the order of the request."
// @Router /v1/namespaces/{namespace}/lookup [get]
func (s *server) lookupQuery(c echo.Context, q request.Query, namespace string) error {
	if len(q["user"]) == 0 {
		return problem.New(problem.InvalidParameter, "The parameter user is missing. Repeat it for each user.")
	}
	v, found, err := s.lookupUsers(c, q, namespace, q["user"], maxLookupQuery)
	if err != nil {
		return err
	}
	found.Hint = commaHint(found.Users)
	return respondCached(c, found, v, found.Users...)
}

// commaHint returns a hint for the first user with a comma in its ID that was never seen: the caller may have meant
// several users. It returns "" if it finds none. Commas are allowed in IDs, so this is not an error.
func commaHint(users []presence) string {
	for _, u := range users {
		if u.LastSeen == 0 && strings.Contains(u.User, ",") {
			return fmt.Sprintf("%.40q was looked up as one user and was never seen. "+
				"To look up several users, repeat the parameter: user=a&user=b.", u.User)
		}
	}
	return ""
}

// lookupUsers returns the presences of up to max users, in the view that a query asks for.
func (s *server) lookupUsers(
	c echo.Context, q request.Query, namespace string, users []string, max int,
) (v view, found lookupResponse, err error) {
	if err := request.CheckUsers(users, max); err != nil {
		return v, found, err
	}
	if v, err = s.view(c, namespace, q); err != nil {
		return v, found, err
	}
	states, details, err := s.readerFor(c, namespace).Describe(c.Request().Context(), namespace, users)
	if err != nil {
		return v, found, err
	}
	found.presences = presences{v.evaluated(), make([]presence, len(users))}
	for i, user := range users {
		found.Users[i] = v.presence(user, states[i], details)
	}
	return v, found, nil
}

// AppendJSON is for [request.WriteJSON].
func (r lookupResponse) AppendJSON(b []byte) []byte {
	b = r.appendFields(append(b, '{'))
	if r.Hint != "" {
		b = request.AppendString(append(b, `,"hint":`...), r.Hint)
	}
	return append(b, '}')
}
