package api

import "net/http"

// code names what went wrong, for programs.
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
	codeUnsupportedMediaType code = "unsupported_media_type"
	codeConfirmationRequired code = "confirmation_required"
	codeNotFound             code = "not_found"
	codeMethodNotAllowed     code = "method_not_allowed"
	codeWrongKeyType         code = "wrong_key_type"
	codeStoreUnavailable     code = "store_unavailable"
	codeStoreFull            code = "store_full"
	codeOverloaded           code = "overloaded"
	codeInternal             code = "internal"
)

// kind is what all errors of one code have in common.
type kind struct {
	code   code
	status int
	title  string
	advice string // for the page of errors: what it means and what to do
}

// kinds lists all codes, in the order of the page of errors.
func kinds() []kind {
	return []kind{
		{codeInvalidNamespace, 400, "Invalid namespace", "A namespace is 1 to 64 of A–Z a–z 0–9 . _ - and does not start with a dot."},
		{codeInvalidUser, 400, "Invalid user", "A user is 1 to 256 bytes of UTF-8 without control characters, and neither . nor .. — percent-encode it in a path."},
		{codeInvalidTime, 400, "Invalid time", "Times are RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123), between 1970 and the end of the year 9999. JavaScript's Date.now() is in milliseconds: divide it by 1000. A ping or leave may be at most 5 seconds ahead of the server."},
		{codeInvalidDuration, 400, "Invalid duration", "Durations are written 90s, 5m or 1h30m, or as bare seconds, between 1 ms and 10 years."},
		{codeInvalidThresholds, 400, "Invalid thresholds", "The green threshold has to be shorter than the yellow one. Whichever is not in the query is the namespace's setting."},
		{codeInvalidParameter, 400, "Invalid parameter", "A query parameter has a value it cannot have, is given twice, or is missing; or the path has an empty segment."},
		{codeUnknownParameter, 400, "Unknown parameter", "The query has a parameter that this endpoint does not know. It is refused so that a typo cannot change an answer."},
		{codeInvalidCursor, 400, "Invalid cursor", "Pass next_cursor on as it was, to the same namespace. The limit may change; other parameters are left out or repeated as they were. Without a cursor the walk starts anew."},
		{codeInvalidRange, 400, "Invalid range", "from must not be later than to, to not later than as_of, and offset and limit together at most 1000."},
		{codeInvalidJSON, 400, "Invalid JSON", "The body is not one JSON value of the expected form, in UTF-8, with every name once. NDJSON has one such value on each line."},
		{codeUnknownField, 400, "Unknown field", "The body has a field that this endpoint does not know. Names are case-sensitive."},
		{codeTooManyItems, 400, "Too many items", "Split the request: a bulk request holds 10,000 items, a lookup 1,000 users, a lookup by GET 100. NDJSON has no limit."},
		{codeBodyTooLarge, 413, "Body too large", "A JSON body has at most 1 MiB, a line of NDJSON 4 KiB."},
		{codeUnsupportedMediaType, 415, "Unsupported media type", "Send application/json; bulk requests also take application/x-ndjson. Compressed bodies are not read."},
		{codeConfirmationRequired, 400, "Confirmation required", "Deleting a namespace erases everyone in it: repeat its name in the parameter confirm."},
		{codeNotFound, 404, "Not found", "There is no such path. A user never seen is no error: they are grey."},
		{codeMethodNotAllowed, 405, "Method not allowed", "The path exists, but not for this method. The header Allow lists its methods."},
		{codeWrongKeyType, 500, "Wrong key type", "The namespace's key in Redis holds another type of value. An operator has to rename or delete that key, or choose another prefix."},
		{codeStoreUnavailable, 503, "Store unavailable", "The store could not be asked, so nothing is known: keep showing what was known before, not grey. Pings and leaves may be sent again; they do no harm twice."},
		{codeStoreFull, 503, "Store full", "The disk, or Redis' memory, is full. Reading still works. An operator has to make room."},
		{codeOverloaded, 503, "Overloaded", "The server refuses what it cannot do in time. Nothing was done; try again after Retry-After."},
		{codeInternal, 500, "Internal error", "A defect. It was logged under the request ID; please report it."},
	}
}

// kind returns what is known of a code. A code that is not in the table is an internal error.
func (c code) kind() kind {
	for _, k := range kinds() {
		if k.code == c {
			return k
		}
	}
	return kind{code: codeInternal, status: http.StatusInternalServerError, title: "Internal error"}
}

// ErrorCode is what all error answers with one code have in common.
type ErrorCode struct {
	Code   string
	Status int    // of HTTP
	Title  string // what the code means, in short
	Advice string // what it means and what to do
}

// ErrorCodes returns all codes, in the order of the page of errors.
func ErrorCodes() []ErrorCode {
	var codes []ErrorCode
	for _, k := range kinds() {
		codes = append(codes, ErrorCode{string(k.code), k.status, k.title, k.advice})
	}
	return codes
}
