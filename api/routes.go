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
	return []route{
		{http.MethodPost, user + "/ping", s.ping, nil},
		{http.MethodPost, user + "/leave", s.leave, nil},
		{http.MethodPost, namespace + "/pings", s.pings, nil},
		{http.MethodPost, namespace + "/leaves", s.leaves, nil},

		{http.MethodGet, user, s.getUser, evaluation()},
		{http.MethodPost, namespace + "/lookup", s.lookup, evaluation()},
		{http.MethodGet, namespace + "/lookup", s.lookupQuery, evaluation("user")},
		{http.MethodGet, users, s.listUsers, evaluation("status", "from", "to", "order", "limit", "cursor", "offset")},
		{http.MethodGet, namespace + "/counts", s.counts, evaluation("from", "to")},

		{http.MethodDelete, user, s.forgetUser, nil},
		{http.MethodGet, namespaces, s.listNamespaces, []string{"limit", "cursor"}},
		{http.MethodGet, namespace, s.getNamespace, nil},
		{http.MethodDelete, namespace, s.deleteNamespace, []string{"confirm"}},

		{http.MethodGet, "/healthz", s.healthz, anyQuery()},
		{http.MethodGet, "/readyz", s.readyz, anyQuery()},
		{http.MethodGet, "/version", s.getVersion, anyQuery()},

		{http.MethodGet, "/openapi.yaml", s.page, anyQuery()},
		{http.MethodGet, "/openapi.json", s.page, anyQuery()},
		{http.MethodGet, "/docs", s.docs, anyQuery()},
		{http.MethodGet, "/docs/", s.page, anyQuery()}, // the one path that ends with a slash
		{http.MethodGet, "/docs/docs.js", s.page, anyQuery()},
		{http.MethodGet, "/docs/docs.css", s.page, anyQuery()},
		{http.MethodGet, "/docs/errors", s.page, anyQuery()},
		{http.MethodGet, "/docs/errors.css", s.page, anyQuery()},
		{http.MethodGet, "/docs/favicon.svg", s.page, anyQuery()},
		{http.MethodGet, "/docs/swagger-ui.css", s.page, anyQuery()},
		{http.MethodGet, "/docs/swagger-ui-bundle.js", s.page, anyQuery()},
	}
}

// extraRoutes returns the endpoints that the program adds, as routes without parameters.
func extraRoutes(endpoints []Endpoint) []route {
	var routes []route
	for _, e := range endpoints {
		handle := func(c echo.Context, _ query) error { return e.Handle(c) }
		routes = append(routes, route{e.Method, e.Path, handle, nil})
	}
	return routes
}

// evaluation returns the parameters that say how statuses are evaluated, and some more.
func evaluation(more ...string) []string {
	return append([]string{"as_of", "green", "yellow"}, more...)
}

// serve checks the query and calls the handler.
func (r route) serve(c echo.Context) error {
	c.Response().Header()[echo.HeaderCacheControl] = noStore
	q, err := parseQuery(c.Request().URL.RawQuery, r.query)
	if err != nil {
		return err
	}
	return r.handle(c, q)
}
