package api

import (
	"context"

	"github.com/labstack/echo/v4"
)

// statusAnswer is the answer to a probe.
type statusAnswer struct {
	Status string `json:"status"`
} // @name ServiceStatus

// healthz answers as long as the process is alive, whatever the store does: restarting it would not
// help the store.
//
// @ID getHealth
// @Tags Service
// @Summary Check that the process is alive
// @Description For liveness probes. Does not depend on the store, because restarting the process would not repair the
// @Description store. Unknown query parameters are ignored.
// @Success 200 {object} statusAnswer "The process is alive."
// @Router /healthz [get]
func (s *server) healthz(c echo.Context, _ query) error {
	return answer(c, statusAnswer{"ok"})
}

// readyz answers 200 when the store can take reads and writes. It asks nobody who they are, and a probe is work for
// the store: those that come while one is under way share its answer, however many they are.
//
// @ID getReadiness
// @Tags Service
// @Summary Check that the server can serve requests
// @Description For readiness probes and load balancers. Returns 200 if the store accepts reads and writes. Unknown
// @Description query parameters are ignored.
// @Success 200 {object} statusAnswer "The store accepts reads and writes."
// @Failure default {object} problem "error"
// @Router /readyz [get]
func (s *server) readyz(c echo.Context, _ query) error {
	_, err, _ := s.probes.Do("", func() (any, error) { // the store bounds its time
		return nil, s.store.Ready(context.WithoutCancel(c.Request().Context()))
	})
	if err != nil {
		return err
	}
	return answer(c, statusAnswer{"ready"})
}

// getVersion answers with the build that runs.
//
// @ID getVersion
// @Tags Service
// @Summary Get the version of the server
// @Description Unknown query parameters are ignored.
// @Success 200 {object} Version "The version and build."
// @Router /version [get]
func (s *server) getVersion(c echo.Context, _ query) error {
	return answer(c, s.version)
}
