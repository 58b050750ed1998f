package operations

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// Version describes the running build.
type Version struct {
	// The version of lastseen.
	Version string `json:"version"`
	// The commit that it was built from, if known.
	Revision string `json:"revision,omitzero" validate:"optional"`
	// The version of Go that it was built with.
	Go string `json:"go"`
} // @name Version

// statusResponse is the response to a probe.
type statusResponse struct {
	Status string `json:"status"`
} // @name ServiceStatus

// Healthz responds as long as the process is alive.
//
// @ID getHealth
// @Summary Check that the process is alive
// @Description For liveness probes. Does not depend on the store, because restarting the process would not repair the
// @Description store. Unknown query parameters are ignored.
// @Success 200 {object} statusResponse "The process is alive."
// @Router /healthz [get]
func (h *Handlers) Healthz(c echo.Context, _ request.Query) error {
	return request.Respond(c, statusResponse{"ok"})
}

// Readyz responds with status 200 if the store can serve reads and writes and the server is not shutting down. It is
// public and each probe costs the store work, so concurrent requests share one probe.
//
// @ID getReadiness
// @Summary Check that the server can serve requests
// @Description For readiness probes and load balancers. Returns 200 if the store accepts reads and writes and the
// @Description server is not shutting down. Unknown query parameters are ignored.
// @Success 200 {object} statusResponse "The store accepts reads and writes."
// @Failure default {object} problem.Body "error"
// @Router /readyz [get]
func (h *Handlers) Readyz(c echo.Context, _ request.Query) error {
	if h.o.Draining() {
		return problem.New(problem.ShuttingDown, "The server is shutting down. It still serves requests for a moment.")
	}
	_, err, _ := h.probes.Do("", func() (any, error) { // the store bounds its time
		return nil, h.o.Ready(context.WithoutCancel(c.Request().Context()))
	})
	if err != nil {
		return err
	}
	return request.Respond(c, statusResponse{"ready"})
}

// GetVersion responds with the version of the server.
//
// @ID getVersion
// @Summary Get the version of the server
// @Description Unknown query parameters are ignored.
// @Success 200 {object} Version "The version and build."
// @Router /version [get]
func (h *Handlers) GetVersion(c echo.Context, _ request.Query) error {
	return request.Respond(c, h.o.Version)
}
