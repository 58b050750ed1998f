// Package lastseen is the vocabulary of a presence service: what a state, a status, a threshold and a last-seen time
// are, and which names, times and durations are valid.
//
// A client sends a ping while a user is online, and may send a leave when the user goes away. Only a [State] is kept
// for each user: the time of the newest ping or leave, and whether it was a leave. [Thresholds] compute everything else
// at each read: the green, yellow or grey [Status], and the instant until which it holds. No "online" flag is stored
// that a crash could leave behind.
//
// # Precision
//
// Every instant is an [Instant]: whole Unix milliseconds. Only [ParseTime] and [InstantOf] cut finer times to the
// millisecond, always downwards.
//
// # Limits
//
// The package is pure: no clocks, no input or output, nothing but the standard library. All its values may be used
// from many goroutines at once.
package lastseen

import (
	"bytes"
	"embed"
	"strconv"
)

//go:embed openapi.yaml docs/asyncapi.yaml docs/connections.schema.json
var documents embed.FS

// OpenAPI returns the description of the HTTP interface of a version of lastseen: an OpenAPI 3.0 document in YAML.
func OpenAPI(version string) []byte { return document("openapi.yaml", version) }

// AsyncAPI returns that of the WebSocket: an AsyncAPI 3.0 document in YAML, which refers to [FrameSchemas].
func AsyncAPI(version string) []byte { return document("docs/asyncapi.yaml", version) }

// FrameSchemas returns the frames of the WebSocket as JSON Schemas.
func FrameSchemas() []byte { return document("docs/connections.schema.json", "") }

func document(name, version string) []byte {
	content, _ := documents.ReadFile(name) // which is embedded
	return bytes.Replace(content, []byte(`version: "1"`), []byte("version: "+strconv.Quote(version)), 1)
}
