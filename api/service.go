package api

import "github.com/labstack/echo/v4"

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
