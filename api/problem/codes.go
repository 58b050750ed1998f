package problem

import (
	"net/http"
	"slices"
	"sync"
)

// Code identifies what went wrong, for programs.
type Code string // @name ErrorCode

// All codes. Each is explained at /docs/errors.
const (
	InvalidNamespace     Code = "invalid_namespace"
	InvalidUser          Code = "invalid_user"
	InvalidTime          Code = "invalid_time"
	InvalidDuration      Code = "invalid_duration"
	InvalidThresholds    Code = "invalid_thresholds"
	InvalidParameter     Code = "invalid_parameter"
	UnknownParameter     Code = "unknown_parameter"
	InvalidCursor        Code = "invalid_cursor"
	InvalidRange         Code = "invalid_range"
	InvalidJSON          Code = "invalid_json"
	UnknownField         Code = "unknown_field"
	TooManyItems         Code = "too_many_items"
	BodyTooLarge         Code = "body_too_large"
	TooManyHeaders       Code = "too_many_headers"
	UnsupportedMediaType Code = "unsupported_media_type"
	ConfirmationRequired Code = "confirmation_required"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	RateLimited          Code = "rate_limited"
	InvalidDevice        Code = "invalid_device"
	DevicesUnavailable   Code = "devices_unavailable"
	InvalidAvailability  Code = "invalid_availability"
	InvalidNote          Code = "invalid_note"
	NoAvailability       Code = "no_availability"
	AvailabilityNotReady Code = "availability_not_ready"
	NoContacts           Code = "no_contacts"
	TooManyContacts      Code = "too_many_contacts"
	ContactsChanged      Code = "contacts_changed"
	InvalidCall          Code = "invalid_call"
	CallNotFound         Code = "call_not_found"
	CallerBusy           Code = "caller_busy"
	CalleeBusy           Code = "callee_busy"
	CalleeUnavailable    Code = "callee_unavailable"
	CallRefused          Code = "call_refused"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	TooManyCalls         Code = "too_many_calls"
	CallTooSoon          Code = "call_too_soon"
	NoCalls              Code = "no_calls"
	UpgradeRequired      Code = "upgrade_required"
	UnknownFrame         Code = "unknown_frame"
	TimedOut             Code = "timed_out"
	ConnectionClosed     Code = "connection_closed"
	FeedUnavailable      Code = "feed_unavailable"
	WrongKeyType         Code = "wrong_key_type"
	NamespaceMismatch    Code = "namespace_mismatch"
	StoreUnavailable     Code = "store_unavailable"
	StoreFull            Code = "store_full"
	Overloaded           Code = "overloaded"
	KeysUnavailable      Code = "keys_unavailable"
	ShuttingDown         Code = "shutting_down"
	Internal             Code = "internal"
)

// Type is what all errors with one code have in common. The texts are sentences in plain text.
type Type struct {
	Code    Code
	Status  int    // of HTTP
	Title   string // short meaning
	Meaning string
	Remedy  string // what to do about it
}

// Retry returns whether sending the same request again helps, for people.
func (p Type) Retry() string {
	switch {
	case p.Status == http.StatusTooManyRequests:
		return "Yes, after the number of seconds in the header Retry-After."
	case p.Status == http.StatusServiceUnavailable:
		return "Yes, after the number of seconds in the header Retry-After. " +
			"Repeating a ping or a leave that was recorded is harmless."
	case p.Status >= http.StatusInternalServerError:
		return "Not until an operator has fixed the cause."
	default:
		return "No: the same request will fail again."
	}
}

// Types returns all codes, in the order of the error guide.
func Types() []Type {
	return slices.Concat(
		inputProblems(), bodyProblems(), callerProblems(), userProblems(),
		callProblems(), connectProblems(), serverProblems())
}

// inputProblems are about paths, queries and times.
func inputProblems() []Type {
	return []Type{
		{
			InvalidNamespace, 400, "Invalid namespace",
			"A namespace is 1 to 64 characters of A–Z a–z 0–9 . _ - and does not start with a dot.",
			"Choose a name by these rules. Keep a display name elsewhere.",
		},
		{
			InvalidUser, 400, "Invalid user",
			"A user is 1 to 256 bytes of UTF-8 without control characters, line breaks and bidirectional overrides. " +
				"The names . and .. are not allowed.",
			"Percent-encode users in paths and queries: a/b is a%2Fb. Do not send an empty user.",
		},
		{
			InvalidTime, 400, "Invalid time",
			"A time is malformed, before 1970 or after the year 9999; or the time of a ping or a leave is more " +
				"than 5 seconds ahead of the server's clock.",
			"Send RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123). JavaScript's Date.now() is in " +
				"milliseconds: divide it by 1000. In a query, write a plus sign as %2B. Omit the time to use the " +
				"server's clock.",
		},
		{
			InvalidDuration, 400, "Invalid duration",
			"A duration is malformed, or not between 1 ms and 10 years; or after, which delays a leave, is more than " +
				"a minute.",
			"Send 90s, 5m or 1h30m, or a number of seconds.",
		},
		{
			InvalidThresholds, 400, "Invalid thresholds",
			"The green threshold is not shorter than the yellow one.",
			"Send both thresholds, or compare the one you send with the namespace's setting for the other.",
		},
		{
			InvalidParameter, 400, "Invalid parameter",
			"A query parameter has an invalid value, is repeated or is missing; or the path has an empty segment.",
			"Correct the parameter that the detail names. The detail also has the allowed values.",
		},
		{
			UnknownParameter, 400, "Unknown parameter",
			"The endpoint does not have this query parameter. Unknown parameters are errors, so a typo cannot " +
				"change a response.",
			"Correct the name, or remove the parameter. Parameters named _ or utm_… are ignored.",
		},
		{
			InvalidCursor, 400, "Invalid cursor",
			"The cursor is damaged, or belongs to another namespace, to another kind of request or to other " +
				"parameters.",
			"Pass next_cursor unchanged; for changes, cursor or Last-Event-ID. The limit can change. Omit the other " +
				"parameters of a list or repeat them unchanged. Omit the cursor to start over.",
		},
		{
			InvalidRange, 400, "Invalid range",
			"from is later than to, to is later than as_of, or the sum of offset and limit is more than 1,000.",
			"Put the times in order. Beyond 1,000 users, use next_cursor instead of an offset.",
		},
	}
}

// bodyProblems are about bodies and methods.
func bodyProblems() []Type {
	return []Type{
		{
			InvalidJSON, 400, "Invalid JSON",
			"The body is missing, incomplete, or not a single JSON value of the expected form in UTF-8 without " +
				"duplicate names. In NDJSON, one line has such an error.",
			"Correct what the detail names. After an error in NDJSON, the lines before it are recorded. Continue " +
				"with the line that the response names.",
		},
		{
			UnknownField, 400, "Unknown field",
			"The endpoint does not have this field. Field names are case-sensitive.",
			"Correct the name, or remove the field. The detail lists the allowed fields.",
		},
		{
			TooManyItems, 400, "Too many items",
			"A bulk request has at most 10,000 items; a lookup or a request for changes 1,000 users, or 100 by GET; " +
				"a list of contacts 5,000 users.",
			"Split the request. Bulk requests in NDJSON have no limit.",
		},
		{
			BodyTooLarge, 413, "Body too large",
			"A JSON body has at most 1 MiB, one of a lookup, for changes or of contacts 512 KiB, one about a call " +
				"32 KiB, one for a single user 16 KiB, and a line of NDJSON 4 KiB.",
			"Split the request, or send a bulk request as NDJSON.",
		},
		{
			TooManyHeaders, 431, "Too many headers",
			"A request has at most 100 headers.",
			"Remove headers that are not needed. Headers of more than 96 KiB in total get the same status, without " +
				"a JSON body.",
		},
		{
			UnsupportedMediaType, 415, "Unsupported media type",
			"The endpoint does not accept this content type, or the body is compressed or not in UTF-8.",
			"Send application/json, or application/x-ndjson to a bulk endpoint, without Content-Encoding.",
		},
		{
			ConfirmationRequired, 400, "Confirmation required",
			"Deleting a namespace deletes all its users, so the request must repeat its name.",
			"To confirm, set the parameter confirm to the name of the namespace.",
		},
		{
			NotFound, 404, "Not found",
			"The path does not exist; or the namespace is not configured, and the server refuses unknown " +
				"namespaces. A user never seen is not an error: they are grey.",
			"Compare the path with the API at /docs/. A trailing slash counts, and a slash in a user is %2F. Check " +
				"the namespace for typos.",
		},
		{
			MethodNotAllowed, 405, "Method not allowed",
			"The path exists, but does not accept this method.",
			"Use one of the methods in the header Allow.",
		},
	}
}

// callerProblems are about authentication, authorization and rate limits.
func callerProblems() []Type {
	return []Type{
		{
			Unauthenticated, 401, "Unauthenticated",
			"The request has no API key or token, or an invalid one.",
			"Send Authorization: Bearer with the key or token. If it has expired, get a new one. If it has never " +
				"worked, an operator finds the reason in the log, at level debug, under the request ID.",
		},
		{
			Forbidden, 403, "Forbidden",
			"The key or token is valid, but does not allow this request: it lacks the scope or the namespace, or " +
				"it is the token of a user and the request is about another user or about many. A server without " +
				"authentication also refuses requests under host names that a stranger could own, and writes from " +
				"web pages of other origins.",
			"The detail names the scope, the host or the origin. An operator can add the scope to the key, allow a " +
				"host with --allowed-hosts, or allow an origin with --cors-origins. The issuer of a token can add " +
				"the namespace to it.",
		},
		{
			RateLimited, 429, "Rate limited",
			"The caller (an API key, a user, or an address without valid credentials) sent more requests than its " +
				"limit, too many large ones at the same time, or follows too many users or namespaces at the same " +
				"time. The request had no effect, except for the lines of NDJSON that the response counts as recorded.",
			"Ping as often as ping responses say. Send many pings or lookups in one request, and fewer requests at " +
				"the same time. An operator can change the limits.",
		},
	}
}

// serverProblems are about conditions that the caller cannot change.
func serverProblems() []Type {
	return []Type{
		{
			FeedUnavailable, 409, "Changes feed unavailable",
			"The namespace has no changes feed: its setting changes is off, it is a sorted set that other programs " +
				"write, or the Redis user of the server lacks the right to use streams.",
			"Poll lookups instead. An operator can set changes to auto, or give the Redis user the right @stream.",
		},
		{
			WrongKeyType, 500, "Wrong key type",
			"The namespace's key in Redis holds a value of another type.",
			"An operator must rename or delete the key, or choose another prefix.",
		},
		{
			NamespaceMismatch, 500, "Namespace mismatch",
			"The namespace is stored in Redis with other settings than this server's: another number of shards, " +
				"score unit or key. The server neither reads nor writes it.",
			"An operator must correct the setting that the detail names. docs/upgrade.md describes how to change it.",
		},
		{
			StoreUnavailable, 503, "Store unavailable",
			"The store is unavailable, so the presence is unknown. Unknown is not offline.",
			"Keep showing the last known status, not grey, and try again. If the error lasts, an operator checks " +
				"/readyz and the log.",
		},
		{
			StoreFull, 503, "Store full",
			"The disk or Redis' memory is full, or the number of namespaces has reached the setting " +
				"max-namespaces. Reads still work.",
			"Clients continue to ping at their usual interval. An operator must free space, delete unused " +
				"namespaces, or raise max-namespaces.",
		},
		{
			Overloaded, 503, "Overloaded",
			"The server has more requests than it can process in time. It refuses lists and counts first, then bulk " +
				"requests, then lookups, and single pings and leaves last. The request had no effect, except for the " +
				"lines of NDJSON that the response counts as recorded.",
			"Wait as long as Retry-After says and try again. If this happens often, let clients ping less often, or " +
				"add servers.",
		},
		{
			KeysUnavailable, 503, "Keys unavailable",
			"The server could not fetch the keys of the token's issuer, so it cannot verify the token.",
			"Try again. If the error lasts, an operator checks the issuer and finds the reason in the log. API " +
				"keys still work.",
		},
		{
			ShuttingDown, 503, "Shutting down",
			"The server is shutting down. /readyz returns this, so that load balancers send requests to other " +
				"servers, and so does a request for a WebSocket. Other requests are served for a moment. A request " +
				"that waits for changes also gets it if the visibility of its namespace changes.",
			"Send requests to another server, or again.",
		},
		{
			Internal, 500, "Internal error",
			"The server has a defect. The log has the cause under the request ID.",
			"Please report it with the request ID.",
		},
	}
}

// Type returns the problem type of a code. A code that is not in the table is an internal error.
func (c Code) Type() Type {
	if p, ok := problemTypes()[c]; ok {
		return p
	}
	return Type{Code: Internal, Status: http.StatusInternalServerError, Title: "Internal error"}
}

// problemTypes returns the table, made once: a server under load refuses many requests a second.
var problemTypes = sync.OnceValue(func() map[Code]Type {
	all := map[Code]Type{}
	for _, p := range Types() {
		all[p.Code] = p
	}
	return all
})
