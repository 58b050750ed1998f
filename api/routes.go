package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// route is one endpoint. A GET route answers HEAD, too; OPTIONS and wrong methods are answered from
// what is registered for the path.
type route struct {
	method string
	path   string
	rule   rule // who may use it
	handle func(echo.Context, query) error
	query  []string // the parameters it knows; others are errors
}

// routes is the table of all endpoints.
func (s *server) routes() []route {
	const (
		namespaces = "/v1/namespaces"
		namespace  = namespaces + "/:namespace"
		users      = namespace + "/users"
		user       = users + "/:user"
	)
	return append([]route{
		{http.MethodPost, user + "/ping", forOneself, s.ping, nil},
		{http.MethodPost, user + "/leave", byBeacon, s.leave, nil},
		{http.MethodPost, namespace + "/pings", forMany, s.pings, nil},
		{http.MethodPost, namespace + "/leaves", forMany, s.leaves, nil},

		{http.MethodGet, user, toRead, s.getUser, evaluation()},
		{http.MethodPost, namespace + "/lookup", toRead, s.lookup, evaluation()},
		{http.MethodGet, namespace + "/lookup", toRead, s.lookupQuery, evaluation("user")},
		{http.MethodGet, users, toRead, s.listUsers, evaluation("status", "from", "to", "order", "limit", "cursor", "offset")},
		{http.MethodGet, namespace + "/counts", toRead, s.counts, evaluation("from", "to")},

		{http.MethodDelete, user, toErase, s.forgetUser, nil},
		{http.MethodGet, namespaces, toList, s.listNamespaces, []string{"limit", "cursor"}},
		{http.MethodGet, namespace, toRead, s.getNamespace, nil},
		{http.MethodDelete, namespace, toErase, s.deleteNamespace, []string{"confirm"}},

		{http.MethodGet, "/healthz", public, s.healthz, anyQuery()},
		{http.MethodGet, "/readyz", public, s.readyz, anyQuery()},
		{http.MethodGet, "/version", public, s.getVersion, anyQuery()},
	}, s.pageRoutes()...)
}

// extraRoutes returns the endpoints that the program adds, as routes without parameters. What they do is not known
// here, so they need the most.
func extraRoutes(endpoints []Endpoint) []route {
	var routes []route
	for _, e := range endpoints {
		handle := func(c echo.Context, _ query) error { return e.Handle(c) }
		routes = append(routes, route{e.Method, e.Path, toErase, handle, nil})
	}
	return routes
}

// evaluation returns the parameters that say how statuses are evaluated, and some more.
func evaluation(more ...string) []string {
	return append([]string{"as_of", "green", "yellow"}, more...)
}

// serve returns what checks the caller and the query, and calls the handler.
func (s *server) serve(r route) echo.HandlerFunc {
	if r.rule == unruled {
		panic("api: nobody has said who may use " + r.method + " " + r.path)
	}
	shown := reachOf(r.method, r.path)
	return func(c echo.Context) error {
		c.Response().Header()[echo.HeaderCacheControl] = noStore
		if r.rule != public {
			if err := s.authorize(c, r.rule); err != nil {
				return err
			}
		}
		q, err := parseQuery(c.Request().URL.RawQuery, r.query)
		if err != nil {
			return err
		}
		if err := r.handle(c, q); err != nil {
			return err
		}
		s.failures.succeeded(shown)
		return nil
	}
}
