// Package lastseen is the vocabulary of a presence service: what a status, a threshold, a state and
// a last-seen time are, and which names, times and durations are well formed.
//
// A client pings to say "this user is here" and may leave to say "this user went away". All that is
// kept about a user is a [State]: the newest time asserted, and whether it was a leave. Everything
// a reader sees is computed from it when read, by [Thresholds]: the green, yellow or grey [Status],
// and the instant until which that status holds. There is no stored "online" flag that a crash could
// leave standing.
//
// # Precision
//
// Every instant is an [Instant]: whole Unix milliseconds. [ParseTime] and [InstantOf] are the only
// places where finer times are cut to the millisecond, always downwards.
//
// # Limits
//
// The package is pure: no clocks, no input or output, nothing but the standard library. All its
// values may be used from many goroutines at once.
package lastseen
