package api

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/swaggest/swgui/v5/static"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
)

//go:embed pages
var pageFiles embed.FS

// The media types of files.
const (
	mediaYAML       = "application/yaml" // RFC 9512
	mediaHTML       = "text/html; charset=utf-8"
	mediaCSS        = "text/css; charset=utf-8"
	mediaJavaScript = "text/javascript; charset=utf-8"
	mediaSVG        = "image/svg+xml"
)

// page answers with the file that belongs to the route.
func (s *server) page(c echo.Context, _ query) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	f, found := files[c.Path()]
	if !found {
		return fmt.Errorf("no file for the route %s", c.Path())
	}
	return f.serve(c)
}

// root leads to the documentation. The redirect is relative, for proxies that add a prefix, and temporary: browsers
// keep a permanent one for whatever listens on the port next.
func (s *server) root(c echo.Context, _ query) error {
	return c.Redirect(http.StatusFound, "docs/")
}

// docs leads whoever typed /docs to the page; the redirect is relative, for proxies that add a prefix.
func (s *server) docs(c echo.Context, _ query) error {
	return c.Redirect(http.StatusMovedPermanently, "docs/")
}

// loadFiles returns the files of the routes that page serves: the OpenAPI document, our pages, and
// of Swagger UI the two files that it needs.
func loadFiles() (map[string]*file, error) {
	openAPI := lastseen.OpenAPI()
	openAPIJSON, err := jsonOf(openAPI)
	if err != nil {
		return nil, err
	}
	guide, err := errorGuide()
	if err != nil {
		return nil, err
	}
	files := map[string]*file{
		"/openapi.yaml": newFile(mediaYAML, openAPI),
		"/openapi.json": newFile(mediaJSON, openAPIJSON),
		"/docs/errors":  newFile(mediaHTML, guide),
	}
	for _, f := range []struct {
		route, mediaType string
		from             fs.FS
		name             string
	}{
		{"/docs/", mediaHTML, pageFiles, "pages/docs.html"},
		{"/docs/docs.js", mediaJavaScript, pageFiles, "pages/docs.js"},
		{"/docs/docs.css", mediaCSS, pageFiles, "pages/docs.css"},
		{"/docs/errors.css", mediaCSS, pageFiles, "pages/errors.css"},
		{"/docs/favicon.svg", mediaSVG, pageFiles, "pages/favicon.svg"},
		{"/docs/swagger-ui.css", mediaCSS, static.FS, "swagger-ui.css.gz"},
		{"/docs/swagger-ui-bundle.js", mediaJavaScript, static.FS, "swagger-ui-bundle.js.gz"},
	} {
		content, err := fs.ReadFile(f.from, f.name)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(f.name, ".gz") {
			files[f.route] = newGzippedFile(f.mediaType, content)
		} else {
			files[f.route] = newFile(f.mediaType, content)
		}
	}
	return files, nil
}

// jsonOf converts a YAML document.
func jsonOf(document []byte) ([]byte, error) {
	var value any
	if err := yaml.Unmarshal(document, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// errorGuide is the page to which the type of an error answer points.
func errorGuide() ([]byte, error) {
	guide, err := template.ParseFS(pageFiles, "pages/errors.html")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = guide.Execute(&b, ErrorCodes())
	return b.Bytes(), err
}
