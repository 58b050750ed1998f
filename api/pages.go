package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/web"

	"github.com/lastseen/lastseen/api/guard"
)

// pageRoutes returns the routes of the pages for people.
func (s *server) pageRoutes() []route {
	routes := []route{
		{http.MethodGet, "/docs", guard.Public, redirectToDocs, nil},
	}
	for _, path := range web.Paths() {
		routes = append(routes, route{http.MethodGet, path, guard.Public, s.page, nil})
	}
	return routes
}

// redirectToDocs redirects to a relative URL, for proxies that add a prefix.
func redirectToDocs(c echo.Context, _ request.Query) error {
	return c.Redirect(http.StatusMovedPermanently, "docs/")
}

// page responds with the page of the route.
func (s *server) page(c echo.Context, _ request.Query) error {
	r := c.Request()
	// Package net/http offers ranges, which pages do not have.
	c.Response().Before(func() { c.Response().Header().Del("Accept-Ranges") })
	return s.pages.Serve(c.Response(), r, c.Path(), request.AcceptsGzip(r.Header[echo.HeaderAcceptEncoding]))
}
