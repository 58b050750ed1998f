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
	_ "embed"
	"strconv"
	"strings"
)

//go:embed openapi.yaml
var openAPI string

// OpenAPI returns the description of the HTTP interface of a version of lastseen: an OpenAPI 3.0 document in YAML.
func OpenAPI(version string) []byte {
	return []byte(strings.Replace(openAPI, `version: "1"`, "version: "+strconv.Quote(version), 1))
}
