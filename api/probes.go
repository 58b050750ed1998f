package api

import (
	"context"

	"github.com/labstack/echo/v4"
)

// statusResponse is the response to a probe.
type statusResponse struct {
	Status string `json:"status"`
} // @name ServiceStatus

// healthz responds as long as the process is alive, whatever the store does: a restart would not help the store.
//
// @ID getHealth
// @Tags Service
// @Summary Is the process alive?
// @Description Answers as long as the process does, whatever the store does: restarting the process would not help the store. For liveness probes. Unknown query parameters are passed over.
// @Produce json
// @Success 200 {object} statusResponse "The process is alive."
// @Router /healthz [get]
func (s *server) healthz(c echo.Context, _ query) error {
	return respond(c, statusResponse{"ok"})
}

// readyz responds with status 200 if the store can serve reads and writes. It is public and each probe costs the store
// work, so concurrent requests share one probe.
//
// @ID getReadiness
// @Tags Service
// @Summary Can it serve requests?
// @Description Answers 200 when the store can take reads and writes. For readiness probes and load balancers. Unknown query parameters are passed over.
// @Produce json
// @Success 200 {object} statusResponse "The store can take reads and writes."
// @Failure 500 {object} problem "internal"
// @Failure 503 {object} problem "store_unavailable, store_full"
// @Router /readyz [get]
func (s *server) readyz(c echo.Context, _ query) error {
	_, err, _ := s.probes.Do("", func() (any, error) { // the store bounds its time
		return nil, s.store.Ready(context.WithoutCancel(c.Request().Context()))
	})
	if err != nil {
		return err
	}
	return respond(c, statusResponse{"ready"})
}

// getVersion returns the version of the running build.
//
// @ID getVersion
// @Tags Service
// @Summary Which build is running?
// @Description Unknown query parameters are passed over.
// @Produce json
// @Success 200 {object} Version "The build."
// @Router /version [get]
func (s *server) getVersion(c echo.Context, _ query) error {
	return respond(c, s.version)
}
