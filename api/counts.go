package api

import (
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// countsResponse is the number of users with each status.
type countsResponse struct {
	// The time at which the statuses were evaluated.
	AsOf   timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	Green  int64     `json:"green" format:"int64" minimum:"0"`
	Yellow int64     `json:"yellow" format:"int64" minimum:"0"`
	Grey   int64     `json:"grey" format:"int64" minimum:"0"`
	// The sum of green, yellow and grey.
	Total int64 `json:"total" format:"int64" minimum:"0"`
} // @name Counts

// counts returns the number of users of a list with the same parameters.
//
// @ID countUsers
// @Tags Reading
// @Summary Count users by status
// @Description Counts the users that a list with the same parameters returns over all its pages. Requires the scope
// @Description `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets the counts of what it can list. Each further
// @Description 1,000 contacts of the user count as a request.
// @Param namespace path string true "namespace"
// @Param from query string false "earliest last-seen time"
// @Param to query string false "latest last-seen time"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Success 200 {object} countsResponse "The number of users with each status."
// @Router /v1/namespaces/{namespace}/counts [get]
func (s *server) counts(c echo.Context, q query) error {
	namespace, err := pathNamespace(c)
	if err != nil {
		return err
	}
	ctx, users := c.Request().Context(), s.listReader(c, namespace, q)
	p, err := s.listParams(ctx, users, namespace, q)
	if err != nil {
		return err
	}
	n, err := store.CountByStatus(ctx, users, namespace, p.thresholds, p.asOf, p.from, p.to)
	if err != nil {
		return err
	}
	green, yellow, grey := n[lastseen.Green], n[lastseen.Yellow], n[lastseen.Grey]
	return respond(c, countsResponse{
		AsOf: timestamp(p.asOf), Green: green, Yellow: yellow, Grey: grey, Total: green + yellow + grey,
	})
}
