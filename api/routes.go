package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/api/web"
)

// route is one endpoint. A GET route serves HEAD, too. The router responds to OPTIONS and other methods.
type route struct {
	method string
	path   string
	guard.Permission
	handle handler
	query  []string // allowed parameters; others are errors
}

type handler = func(echo.Context, request.Query) error

// measured returns the routes as their metrics need them.
func measured(routes []route) (all []telemetry.Route) {
	events := map[guard.Permission]telemetry.Event{guard.PingSelf: telemetry.Ping, guard.LeaveSelf: telemetry.Leave}
	for _, r := range routes {
		e, records := events[r.Permission]
		all = append(all, telemetry.Route{Method: r.method, Path: r.path, Records: records, Event: e})
	}
	return all
}

// routes is the table of all endpoints.
func (s *server) routes() []route {
	const (
		namespaces = "/v1/namespaces"
		namespace  = namespaces + "/:namespace"
		users      = namespace + "/users"
		user       = users + "/:user"
		contacts   = user + "/contacts"
		webhooks   = "/v1/webhooks"
	)
	return slices.Concat([]route{
		{http.MethodPost, user + "/ping", guard.PingSelf, ofUser(s.ping), nil},
		{http.MethodPost, user + "/leave", guard.LeaveSelf, ofUser(s.leave), nil},
		{http.MethodPost, namespace + "/pings", guard.PingBulk, inNamespace(s.pings), nil},
		{http.MethodPost, namespace + "/leaves", guard.PingBulk, inNamespace(s.leaves), nil},

		{http.MethodGet, user, guard.Read, ofUser(s.getUser), evaluation()},
		{http.MethodGet, user + "/dot.svg", guard.Read, ofUser(s.getDot), evaluation("size")},
		{http.MethodPost, namespace + "/lookup", guard.Read, inNamespace(s.lookup), evaluation()},
		{http.MethodGet, namespace + "/lookup", guard.Read, inNamespace(s.lookupQuery), evaluation("user")},
		{
			http.MethodGet, users, guard.Read, inNamespace(s.listUsers),
			evaluation("status", "from", "to", "order", "limit", "cursor", "offset"),
		},
		{http.MethodGet, namespace + "/counts", guard.Read, inNamespace(s.counts), evaluation("from", "to")},

		{
			http.MethodGet, namespace + "/changes", guard.Read, inNamespace(s.getChanges),
			[]string{"user", "contacts_of", "cursor", "limit", "wait", "status", "snapshot"},
		},
		{http.MethodPost, namespace + "/changes", guard.Read, inNamespace(s.postChanges), nil},
		{http.MethodGet, namespace + "/connect", guard.Greeting, inNamespace(s.connect), nil},

		{http.MethodPut, user + "/availability", guard.WriteUser, ofUser(s.putAvailability), nil},
		{http.MethodGet, user + "/availability", guard.ReadUser, ofUser(s.getAvailability), nil},
		{http.MethodDelete, user + "/availability", guard.WriteUser, ofUser(s.deleteAvailability), nil},
		{http.MethodPut, contacts, guard.WriteUser, ofUser(s.setContacts), nil},
		{http.MethodPatch, contacts, guard.WriteUser, ofUser(s.changeContacts), nil},
		{http.MethodDelete, contacts, guard.WriteUser, ofUser(s.deleteContacts), nil},
		{
			http.MethodGet, contacts, guard.ReadUser, ofUser(s.listContacts),
			evaluation("status", "in_call", "limit", "cursor"),
		},
		{http.MethodGet, user + "/devices", guard.ReadDevices, ofUser(s.getDevices), nil},
		{http.MethodDelete, user + "/connections", guard.Admin, ofUser(s.closeConnections), nil},

		{http.MethodDelete, user, guard.Admin, s.deleteUser, nil},
		{http.MethodGet, namespaces, guard.ListNamespaces, s.listNamespaces, []string{"limit", "cursor"}},
		{http.MethodGet, namespace, guard.Read, inNamespace(s.getNamespace), nil},
		{http.MethodDelete, namespace, guard.Admin, inNamespace(s.deleteNamespace), []string{"confirm"}},

		{http.MethodGet, "/healthz", guard.Public, s.operations.Healthz, nil},
		{http.MethodGet, "/readyz", guard.Public, s.operations.Readyz, nil},
		{http.MethodGet, "/version", guard.Public, s.operations.GetVersion, nil},

		{http.MethodGet, webhooks, guard.Admin, s.operations.ListWebhooks, nil},
		{http.MethodPost, webhooks + "/:webhook/test", guard.Admin, s.operations.TestWebhook, nil},
		{http.MethodPost, webhooks + "/:webhook/enable", guard.Admin, s.operations.EnableWebhook, nil},
	}, s.callRoutes(namespace+"/calls"), s.pageRoutes())
}

// callRoutes are the endpoints about calls.
func (s *server) callRoutes(calls string) []route {
	call := calls + "/:id"
	return []route{
		{http.MethodPost, calls, guard.ActInCall, inNamespace(s.startCall), nil},
		{http.MethodGet, calls, guard.ReadCall, inNamespace(s.listCalls), []string{"user", "cursor", "wait"}},
		{http.MethodGet, call, guard.ReadCall, s.getCall, nil},
		{http.MethodPost, call + "/accept", guard.ActInCall, s.acceptCall, nil},
		{http.MethodPost, call + "/reject", guard.ActInCall, s.rejectCall, nil},
		{http.MethodPost, call + "/end", guard.EndCall, s.endCall, nil},
		{http.MethodPost, call + "/alive", guard.ActInCall, s.keepCall, nil},
	}
}

// inNamespace returns a handler with the namespace in the path, and ofUser one with the user in it as well.
func inNamespace(handle func(c echo.Context, q request.Query, namespace string) error) handler {
	return func(c echo.Context, q request.Query) error {
		namespace, err := request.Namespace(c)
		if err != nil {
			return err
		}
		return handle(c, q, namespace)
	}
}

func ofUser(handle func(c echo.Context, q request.Query, namespace, user string) error) handler {
	return func(c echo.Context, q request.Query) error {
		namespace, user, err := request.Names(c, lastseen.CheckUser)
		if err != nil {
			return err
		}
		return handle(c, q, namespace, user)
	}
}

// evaluation returns the parameters that say how statuses are evaluated, and the given ones.
func evaluation(more ...string) []string {
	return append([]string{"as_of", "green", "yellow"}, more...)
}

// serve returns a handler that checks the caller and the query, and calls the handler of the route.
func (s *server) serve(r route) echo.HandlerFunc {
	if r.Permission == guard.None {
		panic("api: no permission is set for " + r.method + " " + r.path)
	}
	reach, usual := reachOf(r.method, r.path), r.kind()
	return func(c echo.Context) error {
		c.Response().Header()[echo.HeaderCacheControl] = noStore
		var q request.Query
		if r.Permission != guard.Public {
			err := s.gate.Authorize(c, r.Permission)
			if err != nil {
				return err
			}
			if q, err = request.ParseQuery(c.Request().URL.RawQuery, r.query); err != nil {
				return err
			}
			kind := usual
			if kind == guard.List && isDeep(r.path, q) {
				kind = guard.DeepList
			}
			if err = s.load.Check(kind, "The server is overloaded and refuses this request to leave room for pings. "+
				"It had no effect. Try again later."); err != nil {
				return err
			}
		}
		if err := r.handle(c, q); err != nil {
			return err
		}
		s.Failures.Outages.Succeeded(reach)
		return nil
	}
}

// kind returns the kind of the requests to a route, under load.
func (r route) kind() guard.Kind {
	switch {
	case r.Permission == guard.ListNamespaces, strings.HasSuffix(r.path, "/users"),
		strings.HasSuffix(r.path, "/counts"):
		return guard.List
	case r.Permission == guard.PingBulk:
		return guard.Bulk
	case strings.HasSuffix(r.path, "/lookup"), strings.HasSuffix(r.path, "/changes"), r.Permission == guard.ReadDevices,
		r.Permission == guard.ReadUser, r.Permission == guard.ReadCall,
		r.Permission == guard.Read && strings.Contains(r.path, "/:user"):
		return guard.Lookup
	default:
		return guard.Vital
	}
}

// isDeep reports whether a list costs more than the first page of the default size. An invalid limit does not.
func isDeep(path string, q request.Query) bool {
	_, cursor := q.Get("cursor")
	_, offset := q.Get("offset")
	limit, _ := q.Get("limit")
	size, _ := strconv.Atoi(limit)
	return cursor || offset || size > request.DefaultLimit || strings.HasSuffix(path, "/counts")
}

// pageRoutes returns the routes of the pages for people.
func (s *server) pageRoutes() []route {
	routes := []route{
		{http.MethodGet, "/docs", guard.Public, redirectTo("docs/"), nil},
		{http.MethodGet, "/docs/errors", guard.Public, redirectTo("../guides/errors"), nil}, // types of problems
		{http.MethodGet, "/guides", guard.Public, redirectTo("guides/"), nil},
		{http.MethodGet, "/guides/*", guard.Public, s.guide, nil}, // one route, for metrics
	}
	for _, path := range web.Paths() {
		if strings.HasPrefix(path, "/guides/") {
			continue
		}
		routes = append(routes, route{http.MethodGet, path, guard.Public, s.page, nil})
	}
	return routes
}

// redirectTo returns a handler that redirects to a relative URL, for proxies that add a prefix.
func redirectTo(url string) handler {
	return func(c echo.Context, _ request.Query) error { return c.Redirect(http.StatusMovedPermanently, url) }
}

// page responds with the page of the route.
func (s *server) page(c echo.Context, _ request.Query) error {
	return s.servePage(c, c.Path())
}

// guide responds with a page or a file below /guides/. The name of a Markdown file redirects to its page.
func (s *server) guide(c echo.Context, q request.Query) error {
	name := c.Param("*")
	if url := web.GuideOf(name); url != "" {
		return redirectTo(url)(c, q)
	}
	if !s.pages.HasGuide(name) {
		return echo.ErrNotFound
	}
	return s.servePage(c, "/guides/"+name)
}

func (s *server) servePage(c echo.Context, path string) error {
	r := c.Request()
	// Package net/http offers ranges, which pages do not have.
	c.Response().Before(func() { c.Response().Header().Del("Accept-Ranges") })
	return s.pages.Serve(c.Response(), r, path, request.AcceptsGzip(r.Header[echo.HeaderAcceptEncoding]))
}

// reachOf returns the reach of the requests to a route.
func reachOf(method, path string) telemetry.Reach {
	const namespaces = "/v1/namespaces"
	switch {
	case path == "/readyz": // it checks whether writes would succeed
		return telemetry.Writing
	case strings.HasSuffix(path, "/connect"): // only the upgrade
		return telemetry.NoStore
	case !strings.HasPrefix(path, "/v1/"), path == namespaces+"/:namespace" && method != http.MethodDelete:
		return telemetry.NoStore // the latter returns settings
	case strings.HasSuffix(path, "/test"): // of webhooks
		return telemetry.NoStore
	case strings.HasSuffix(path, "/lookup"), strings.HasSuffix(path, "/changes"):
		return telemetry.Reading
	case method == http.MethodDelete, method == http.MethodPost, method == http.MethodPut, method == http.MethodPatch:
		return telemetry.Writing
	default:
		return telemetry.Reading
	}
}
