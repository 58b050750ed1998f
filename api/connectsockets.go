package api

import "context"

// WebSockets returns the number of WebSockets that are open.
func (s *Shared) WebSockets() int { return 0 }

// EndWebSockets returns when no WebSocket is open any longer. When the context ends, it closes the rest. It is for the
// time after [Shared.Drain].
func (s *Shared) EndWebSockets(context.Context) {}
