package kit

import "time"

// Sizes that the server allows, in bytes.
const (
	MaxBody       = 1 << 20   // of a JSON body
	MaxLookupBody = 512 << 10 // of a lookup
	MaxOneBody    = 16 << 10  // about one user
	MaxLine       = 4096      // of NDJSON
	ReadBuffer    = 16 << 10  // of a stream of NDJSON
	StreamBuffer  = 64 << 10  // of an HTTP/2 connection
	MaxHello      = 16 << 10  // of the first frame of a WebSocket
	MaxFrame      = 64 << 10  // of later ones
	MaxFrameID    = 64
	FrameCharge   = 2 << 10  // of a frame that count as a request
	MaxSent       = 32 << 10 // of a frame from the server
	MaxTypingIn   = 128
	MinBodyRate   = 1 << 10 // a second
)

// Numbers that the server allows.
const (
	MaxItems       = 10_000 // pings or leaves in a request in JSON
	MaxLookup      = 1000   // users
	MaxChunk       = 512    // lines of NDJSON that are recorded at once
	MaxHeaderLines = 100
	MaxNamespaces  = 100 // that a caller follows
	MaxTypingTo    = 20  // users
	FrameBurst     = 40
	MaxAhead       = 5000 // milliseconds that the time of a ping can be in the future
)

// Times after which the server acts, or until which it waits.
const (
	HeaderTimeout = 5 * time.Second
	ReadTimeout   = 30 * time.Second
	WriteTimeout  = 30 * time.Second
	IdleTimeout   = 2 * time.Minute
	DrainTimeout  = 5 * time.Second
	LineTimeout   = 30 * time.Second
	RateWindow    = 10 * time.Second // after which [MinBodyRate] applies
	HelloTimeout  = 5 * time.Second
	MaxSocketPing = 25 * time.Second
	TickInterval  = 20 * time.Second
	CallsPause    = 5 * time.Second        // between two readings of a poll for calls
	LateCall      = time.Second            // after its end, a call whose end was not received is read
	MaxSelfEnd    = time.Hour              // after which the availability of users is read again
	MaxSending    = 100 * time.Millisecond // that a slow caller delays what the callee is sent
)
