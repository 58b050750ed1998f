package api

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"github.com/labstack/echo/v4"
)

// statusAnswer is the answer to a probe.
type statusAnswer struct {
	Status string `json:"status"`
}

// healthz answers as long as the process is alive, whatever the store does: restarting it would not
// help the store.
func (s *server) healthz(c echo.Context, _ query) error {
	return answer(c, statusAnswer{"ok"})
}

// readyz answers 200 when the store can take reads and writes.
func (s *server) readyz(c echo.Context, _ query) error {
	if err := s.store.Ready(c.Request().Context()); err != nil {
		return err
	}
	return answer(c, statusAnswer{"ready"})
}

// getVersion answers with the build that runs.
func (s *server) getVersion(c echo.Context, _ query) error {
	return answer(c, s.version)
}

//go:embed errors.html
var errorsTemplate string

// errorsPage explains every error code; the type of an error answer points to it.
func (s *server) errorsPage(c echo.Context, _ query) error {
	page, err := template.New("errors").Parse(errorsTemplate)
	if err != nil {
		return err
	}
	type row struct {
		Code, Title, Advice string
		Status              int
	}
	var rows []row
	for _, k := range kinds() {
		rows = append(rows, row{string(k.code), k.title, k.advice, k.status})
	}
	var b bytes.Buffer
	if err := page.Execute(&b, rows); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; style-src 'unsafe-inline'")
	return c.HTMLBlob(http.StatusOK, b.Bytes())
}
