package api

import (
	"net/http"
	"slices"
	"sync"
)

// code identifies what went wrong, for programs.
type code string // @name ErrorCode

// All codes. Each is explained at /docs/errors.
const (
	codeInvalidNamespace     code = "invalid_namespace"
	codeInvalidUser          code = "invalid_user"
	codeInvalidTime          code = "invalid_time"
	codeInvalidDuration      code = "invalid_duration"
	codeInvalidThresholds    code = "invalid_thresholds"
	codeInvalidParameter     code = "invalid_parameter"
	codeUnknownParameter     code = "unknown_parameter"
	codeInvalidCursor        code = "invalid_cursor"
	codeInvalidRange         code = "invalid_range"
	codeInvalidJSON          code = "invalid_json"
	codeUnknownField         code = "unknown_field"
	codeTooManyItems         code = "too_many_items"
	codeBodyTooLarge         code = "body_too_large"
	codeTooManyHeaders       code = "too_many_headers"
	codeUnsupportedMediaType code = "unsupported_media_type"
	codeConfirmationRequired code = "confirmation_required"
	codeNotFound             code = "not_found"
	codeMethodNotAllowed     code = "method_not_allowed"
	codeUnauthenticated      code = "unauthenticated"
	codeForbidden            code = "forbidden"
	codeRateLimited          code = "rate_limited"
	codeInvalidDevice        code = "invalid_device"
	codeDevicesUnavailable   code = "devices_unavailable"
	codeInvalidAvailability  code = "invalid_availability"
	codeInvalidNote          code = "invalid_note"
	codeNoAvailability       code = "no_availability"
	codeAvailabilityNotReady code = "availability_not_ready"
	codeNoContacts           code = "no_contacts"
	codeTooManyContacts      code = "too_many_contacts"
	codeContactsChanged      code = "contacts_changed"
	codeInvalidCall          code = "invalid_call"
	codeCallNotFound         code = "call_not_found"
	codeCallerBusy           code = "caller_busy"
	codeCalleeBusy           code = "callee_busy"
	codeCalleeUnavailable    code = "callee_unavailable"
	codeCallRefused          code = "call_refused"
	codeIdempotencyKeyReused code = "idempotency_key_reused"
	codeTooManyCalls         code = "too_many_calls"
	codeCallTooSoon          code = "call_too_soon"
	codeNoCalls              code = "no_calls"
	codeUpgradeRequired      code = "upgrade_required"
	codeUnknownFrame         code = "unknown_frame"
	codeTimedOut             code = "timed_out"
	codeConnectionClosed     code = "connection_closed"
	codeFeedUnavailable      code = "feed_unavailable"
	codeWrongKeyType         code = "wrong_key_type"
	codeNamespaceMismatch    code = "namespace_mismatch"
	codeStoreUnavailable     code = "store_unavailable"
	codeStoreFull            code = "store_full"
	codeOverloaded           code = "overloaded"
	codeKeysUnavailable      code = "keys_unavailable"
	codeShuttingDown         code = "shutting_down"
	codeInternal             code = "internal"
)

// ErrorCode is what all errors with one code have in common. The texts are sentences in plain text.
type ErrorCode struct {
	Code    code
	Status  int    // of HTTP
	Title   string // short meaning
	Meaning string
	Remedy  string // what to do about it
}

// Retry returns whether sending the same request again helps, for people.
func (p ErrorCode) Retry() string {
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

// ErrorCodes returns all codes, in the order of the error guide.
func ErrorCodes() []ErrorCode {
	return slices.Concat(
		inputProblems(), bodyProblems(), callerProblems(), deviceProblems(),
		availabilityProblems(), contactProblems(), callProblems(), connectProblems(), serverProblems())
}

// inputProblems are about paths, queries and times.
func inputProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeInvalidNamespace, 400, "Invalid namespace",
			"A namespace is 1 to 64 characters of A–Z a–z 0–9 . _ - and does not start with a dot.",
			"Choose a name by these rules. Keep a display name elsewhere.",
		},
		{
			codeInvalidUser, 400, "Invalid user",
			"A user is 1 to 256 bytes of UTF-8 without control characters, line breaks and bidirectional overrides. " +
				"The names . and .. are not allowed.",
			"Percent-encode users in paths and queries: a/b is a%2Fb. Do not send an empty user.",
		},
		{
			codeInvalidTime, 400, "Invalid time",
			"A time is malformed, before 1970 or after the year 9999; or the time of a ping or a leave is more " +
				"than 5 seconds ahead of the server's clock.",
			"Send RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123). JavaScript's Date.now() is in " +
				"milliseconds: divide it by 1000. In a query, write a plus sign as %2B. Omit the time to use the " +
				"server's clock.",
		},
		{
			codeInvalidDuration, 400, "Invalid duration",
			"A duration is malformed, or not between 1 ms and 10 years; or after, which delays a leave, is more than " +
				"a minute.",
			"Send 90s, 5m or 1h30m, or a number of seconds.",
		},
		{
			codeInvalidThresholds, 400, "Invalid thresholds",
			"The green threshold is not shorter than the yellow one.",
			"Send both thresholds, or compare the one you send with the namespace's setting for the other.",
		},
		{
			codeInvalidParameter, 400, "Invalid parameter",
			"A query parameter has an invalid value, is repeated or is missing; or the path has an empty segment.",
			"Correct the parameter that the detail names. The detail also has the allowed values.",
		},
		{
			codeUnknownParameter, 400, "Unknown parameter",
			"The endpoint does not have this query parameter. Unknown parameters are errors, so a typo cannot " +
				"change a response.",
			"Correct the name, or remove the parameter. Parameters named _ or utm_… are ignored.",
		},
		{
			codeInvalidCursor, 400, "Invalid cursor",
			"The cursor is damaged, or belongs to another namespace, to another kind of request or to other " +
				"parameters.",
			"Pass next_cursor unchanged; for changes, cursor or Last-Event-ID. The limit can change. Omit the other " +
				"parameters of a list or repeat them unchanged. Omit the cursor to start over.",
		},
		{
			codeInvalidRange, 400, "Invalid range",
			"from is later than to, to is later than as_of, or the sum of offset and limit is more than 1,000.",
			"Put the times in order. Beyond 1,000 users, use next_cursor instead of an offset.",
		},
	}
}

// bodyProblems are about bodies and methods.
func bodyProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeInvalidJSON, 400, "Invalid JSON",
			"The body is missing, incomplete, or not a single JSON value of the expected form in UTF-8 without " +
				"duplicate names. In NDJSON, one line has such an error.",
			"Correct what the detail names. After an error in NDJSON, the lines before it are recorded. Continue " +
				"with the line that the response names.",
		},
		{
			codeUnknownField, 400, "Unknown field",
			"The endpoint does not have this field. Field names are case-sensitive.",
			"Correct the name, or remove the field. The detail lists the allowed fields.",
		},
		{
			codeTooManyItems, 400, "Too many items",
			"A bulk request has at most 10,000 items; a lookup or a request for changes 1,000 users, or 100 by GET; " +
				"a list of contacts 5,000 users.",
			"Split the request. Bulk requests in NDJSON have no limit.",
		},
		{
			codeBodyTooLarge, 413, "Body too large",
			"A JSON body has at most 1 MiB, one of a lookup, for changes or of contacts 512 KiB, one about a call " +
				"32 KiB, one for a single user 16 KiB, and a line of NDJSON 4 KiB.",
			"Split the request, or send a bulk request as NDJSON.",
		},
		{
			codeTooManyHeaders, 431, "Too many headers",
			"A request has at most 100 headers.",
			"Remove headers that are not needed. Headers of more than 96 KiB in total get the same status, without " +
				"a JSON body.",
		},
		{
			codeUnsupportedMediaType, 415, "Unsupported media type",
			"The endpoint does not accept this content type, or the body is compressed or not in UTF-8.",
			"Send application/json, or application/x-ndjson to a bulk endpoint, without Content-Encoding.",
		},
		{
			codeConfirmationRequired, 400, "Confirmation required",
			"Deleting a namespace deletes all its users, so the request must repeat its name.",
			"To confirm, set the parameter confirm to the name of the namespace.",
		},
		{
			codeNotFound, 404, "Not found",
			"The path does not exist; or the namespace is not configured, and the server refuses unknown " +
				"namespaces. A user never seen is not an error: they are grey.",
			"Compare the path with the API at /docs/. A trailing slash counts, and a slash in a user is %2F. Check " +
				"the namespace for typos.",
		},
		{
			codeMethodNotAllowed, 405, "Method not allowed",
			"The path exists, but does not accept this method.",
			"Use one of the methods in the header Allow.",
		},
	}
}

// callerProblems are about authentication, authorization and rate limits.
func callerProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeUnauthenticated, 401, "Unauthenticated",
			"The request has no API key or token, or an invalid one.",
			"Send Authorization: Bearer with the key or token. If it has expired, get a new one. If it has never " +
				"worked, an operator finds the reason in the log, at level debug, under the request ID.",
		},
		{
			codeForbidden, 403, "Forbidden",
			"The key or token is valid, but does not allow this request: it lacks the scope or the namespace, or " +
				"it is the token of a user and the request is about another user or about many. A server without " +
				"authentication also refuses requests under host names that a stranger could own, and writes from " +
				"web pages of other origins.",
			"The detail names the scope, the host or the origin. An operator can add the scope to the key, allow a " +
				"host with --allowed-hosts, or allow an origin with --cors-origins. The issuer of a token can add " +
				"the namespace to it.",
		},
		{
			codeRateLimited, 429, "Rate limited",
			"The caller (an API key, a user, or an address without valid credentials) sent more requests than its " +
				"limit, too many large ones at the same time, or follows too many users or namespaces at the same " +
				"time. The request had no effect, except for the lines of NDJSON that the response counts as recorded.",
			"Ping as often as ping responses say. Send many pings or lookups in one request, and fewer requests at " +
				"the same time. An operator can change the limits.",
		},
	}
}

// deviceProblems are about devices.
func deviceProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeInvalidDevice, 400, "Invalid device",
			"A device has an id of 1 to 64 bytes of UTF-8 without control characters, line breaks and bidirectional " +
				"overrides, a kind (web, mobile, desktop, service or other) and meta, a JSON object of at most " +
				"1 KiB. Its activity is active or idle.",
			"Correct what the detail names. Choose a random id for each page load or app start. Send activity only " +
				"with a device.",
		},
		{
			codeDevicesUnavailable, 409, "Devices unavailable",
			"The namespace has no devices and no connections: it is a sorted set that other programs write.",
			"Send pings and leaves without a device, over HTTP.",
		},
	}
}

// serverProblems are about conditions that the caller cannot change.
func serverProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeFeedUnavailable, 409, "Changes feed unavailable",
			"The namespace has no changes feed: its setting changes is off, it is a sorted set that other programs " +
				"write, or the Redis user of the server lacks the right to use streams.",
			"Poll lookups instead. An operator can set changes to auto, or give the Redis user the right @stream.",
		},
		{
			codeWrongKeyType, 500, "Wrong key type",
			"The namespace's key in Redis holds a value of another type.",
			"An operator must rename or delete the key, or choose another prefix.",
		},
		{
			codeNamespaceMismatch, 500, "Namespace mismatch",
			"The namespace is stored in Redis with other settings than this server's: another number of shards, " +
				"score unit or key. The server neither reads nor writes it.",
			"An operator must correct the setting that the detail names. The operations guide describes how.",
		},
		{
			codeStoreUnavailable, 503, "Store unavailable",
			"The store is unavailable, so the presence is unknown. Unknown is not offline.",
			"Keep showing the last known status, not grey, and try again. If the error lasts, an operator checks " +
				"/readyz and the log.",
		},
		{
			codeStoreFull, 503, "Store full",
			"The disk or Redis' memory is full, or the number of namespaces has reached the setting " +
				"max-namespaces. Reads still work.",
			"Clients continue to ping at their usual interval. An operator must free space, delete unused " +
				"namespaces, or raise max-namespaces.",
		},
		{
			codeOverloaded, 503, "Overloaded",
			"The server has more requests than it can process in time. It refuses lists and counts first, then bulk " +
				"requests, then lookups, and single pings and leaves last. The request had no effect, except for the " +
				"lines of NDJSON that the response counts as recorded.",
			"Wait as long as Retry-After says and try again. If this happens often, let clients ping less often, or " +
				"add servers.",
		},
		{
			codeKeysUnavailable, 503, "Keys unavailable",
			"The server could not fetch the keys of the token's issuer, so it cannot verify the token.",
			"Try again. If the error lasts, an operator checks the issuer and finds the reason in the log. API " +
				"keys still work.",
		},
		{
			codeShuttingDown, 503, "Shutting down",
			"The server is shutting down. /readyz returns this, so that load balancers send requests to other " +
				"servers, and so does a request for a WebSocket. Other requests are served for a moment. A request " +
				"that waits for changes also gets it if the visibility of its namespace changes.",
			"Send requests to another server, or again.",
		},
		{
			codeInternal, 500, "Internal error",
			"The server has a defect. The log has the cause under the request ID.",
			"Please report it with the request ID.",
		},
	}
}

// problemType returns the problem type of a code. A code that is not in the table is an internal error.
func (c code) problemType() ErrorCode {
	if p, ok := problemTypes()[c]; ok {
		return p
	}
	return ErrorCode{Code: codeInternal, Status: http.StatusInternalServerError, Title: "Internal error"}
}

// problemTypes returns the table, made once: a server under load refuses many requests a second.
var problemTypes = sync.OnceValue(func() map[code]ErrorCode {
	all := map[code]ErrorCode{}
	for _, p := range ErrorCodes() {
		all[p.Code] = p
	}
	return all
})
