package api

import (
	"time"
)

// WebSocketLimits are the limits of WebSockets on one server.
type WebSocketLimits struct {
	// Max is how many can be open at the same time; default [DefaultWebSockets].
	Max int
	// PerUser is how many a user with a token can have open; default 16. The registry has the same limit for each user.
	PerUser int
	// PerCaller is how many can be open with one API key; 0 for no limit.
	PerCaller int
	// PerAddress is how many can be open from one address that have not said hello; default 1,000.
	PerAddress int
	// Grace is the time from the end of a connection to the user's goodbye, unless the client asks for another one.
	Grace time.Duration
	// Drain is the time over which clients are asked to connect to another server when this one stops; default 30 s.
	Drain time.Duration
}

// The defaults of [WebSocketLimits].
const (
	DefaultWebSockets = 10_000
	defaultPerUser    = 16
	defaultPerAddress = 1000
	defaultDrain      = 30 * time.Second
)
