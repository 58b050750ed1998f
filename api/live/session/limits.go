package session

import "time"

// Limits are the limits of WebSockets on one server.
type Limits struct {
	// Max is how many can be open at the same time; 0 for no limit.
	Max int
	// PerUser is how many one user with a token can have open; 0 for no limit. The registry has a limit for each user
	// of a namespace.
	PerUser int
	// PerCaller is how many can be open with one API key; 0 for no limit.
	PerCaller int
	// PerAddress is how many can be open from one address that have not said hello; 0 for no limit.
	PerAddress int
	// Grace is the time from the end of a connection to the user's leave, unless the client asks for another one.
	Grace time.Duration
	// Drain is the time over which clients are asked to connect to another server when this one stops.
	Drain time.Duration
}

// Limits of WebSockets that are not settings. The client learns some of them by the frame welcome.
const (
	maxHello        = 16 << 10 // bytes
	helloTimeout    = 5 * time.Second
	welcomeTimeout  = 30 * time.Second // for handling the frame hello
	maxFrame        = 64 << 10         // bytes of later frames
	frameCharge     = 2 << 10          // bytes of them that count as a request
	messageTime     = 10 * time.Second
	framesPerSecond = 20
	frameBurst      = 40
	maxBatch        = 500      // users
	maxSent         = 32 << 10 // bytes of a frame from the server
	maxFrameID      = 64       // bytes of an ID, as JSON
	maxSocketPing   = 25 * time.Second
	maxUnanswered   = 2 // pings
)
