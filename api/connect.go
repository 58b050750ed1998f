package api

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// WebSocketLimits are the limits of WebSockets on one server.
type WebSocketLimits = session.Limits

// connect upgrades a request to a WebSocket. What a browser cannot see the reason of is refused before; credentials and
// the rest are checked when the first frame has come, so that a browser can see why by the close code.
//
// @ID connect
// @Tags Connecting
// @Summary Connect
// @Description Opens a WebSocket over HTTP/1.1, with the subprotocol `lastseen.v1` or none. A user who holds one is
// @Description present, and the client can follow changes. The guide /docs/connections describes the frames.
// @Description
// @Description The credentials are in the header Authorization or in the first frame, and are checked then. Browsers
// @Description are accepted from the server's own origin and those of the setting cors-origins. Requires the scope
// @Description `ping` or the user's own token; to follow changes, the scope `read`.
// @Param namespace path string true "namespace"
// @Success 101 "A WebSocket."
// @Router /v1/namespaces/{namespace}/connect [get]
func (s *server) connect(c echo.Context, _ request.Query, namespace string) error {
	r, response := c.Request(), c.Response()
	if err := cmp.Or(checkUpgrade(r), s.sources.CheckSocket(r)); err != nil {
		return err
	}
	taken, err := s.Open(response, r, session.Opening{
		Namespace: namespace, RequestID: response.Header().Get(echo.HeaderXRequestID),
		Address: s.limiter.Proxies.Client(r), Limited: !s.limiter.Proxies.IsLocal(r),
	})
	if taken {
		response.Status, response.Committed = http.StatusSwitchingProtocols, true // package echo must not respond
	}
	return err
}

// checkUpgrade returns an error unless a request is one for a WebSocket.
func checkUpgrade(r *http.Request) error {
	if !transport.IsUpgrade(r) || r.Method != http.MethodGet || !transport.IsSupportedVersion(r) {
		return &problem.Error{
			Code: problem.UpgradeRequired, Detail: "This path serves WebSockets, version " + transport.SocketVersion +
				", over HTTP/1.1: send the headers Upgrade, Connection and Sec-WebSocket-Version.",
			Header: map[string]string{
				echo.HeaderUpgrade: "websocket", echo.HeaderConnection: "Upgrade",
				"Sec-WebSocket-Version": transport.SocketVersion,
			},
		}
	}
	if err := transport.CheckUpgrade(r); err != nil {
		return problem.Errorf(problem.InvalidParameter, "Invalid request for a WebSocket: %v.", err)
	}
	return nil
}
