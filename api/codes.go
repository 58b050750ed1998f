package api

import (
	"net/http"
	"slices"
)

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
	codeUnauthenticated      code = "unauthenticated"
	codeForbidden            code = "forbidden"
	codeRateLimited          code = "rate_limited"
	codeWrongKeyType         code = "wrong_key_type"
	codeStoreUnavailable     code = "store_unavailable"
	codeStoreFull            code = "store_full"
	codeOverloaded           code = "overloaded"
	codeKeysUnavailable      code = "keys_unavailable"
	codeInternal             code = "internal"
)

// kind is what all errors of one code have in common. The last two are for the guides to errors:
// see [ErrorCode].
type kind struct {
	code    code
	status  int
	title   string
	meaning string
	remedy  string // what to do about it
}

// retry says whether the same request is worth sending again.
func (k kind) retry() string {
	switch {
	case k.status == http.StatusTooManyRequests:
		return "Yes, after the seconds that the header Retry-After names."
	case k.status == http.StatusServiceUnavailable:
		return "Yes, after the seconds that the header Retry-After names; even a ping or a leave that was recorded does no harm twice."
	case k.status >= http.StatusInternalServerError:
		return "Not before an operator has looked at it."
	default:
		return "No: the same request will fail again."
	}
}

// kinds lists all codes, in the order of the guides to errors.
func kinds() []kind { return slices.Concat(inputKinds(), bodyKinds(), callerKinds(), serverKinds()) }

// inputKinds are about what is in paths and queries, and times wherever they are.
func inputKinds() []kind {
	return []kind{
		{
			codeInvalidNamespace, 400, "Invalid namespace",
			"The namespace is not 1 to 64 of A–Z a–z 0–9 . _ - or starts with a dot.",
			"Name it by these rules; what people call it can be kept elsewhere.",
		},
		{
			codeInvalidUser, 400, "Invalid user",
			"A user is 1 to 256 bytes of UTF-8 without control characters, and neither . nor .. itself.",
			"Percent-encode users in paths and queries (a/b is a%2Fb), and send none that is empty.",
		},
		{
			codeInvalidTime, 400, "Invalid time",
			"A time is not written as one, is before 1970 or after the year 9999, or is that of a ping or a leave and more than 5 seconds ahead of the server's clock.",
			"Send RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123). JavaScript's Date.now() is in milliseconds: divide it by 1000. In a query a plus sign is %2B. To mean now, leave the time out.",
		},
		{
			codeInvalidDuration, 400, "Invalid duration",
			"A duration is not written as one, or is not between 1 ms and 10 years.",
			"Write 90s, 5m or 1h30m, or bare seconds.",
		},
		{
			codeInvalidThresholds, 400, "Invalid thresholds",
			"The green threshold is not shorter than the yellow one.",
			"Send both, or compare the one you send with the namespace's setting of the other.",
		},
		{
			codeInvalidParameter, 400, "Invalid parameter",
			"A query parameter has a value that it cannot have, is given twice, or is missing; or the path has an empty segment.",
			"The detail names the parameter and what it takes: correct that one.",
		},
		{
			codeUnknownParameter, 400, "Unknown parameter",
			"The query has a parameter that this endpoint does not know. It is refused so that a typo cannot change an answer.",
			"Correct its name, or leave it out. Parameters named _ or utm_… are ignored.",
		},
		{
			codeInvalidCursor, 400, "Invalid cursor",
			"The cursor is damaged, or belongs to another namespace or other parameters.",
			"Pass next_cursor on as it was. The limit may change; leave other parameters out, or repeat them as they were. Without a cursor the walk begins anew.",
		},
		{
			codeInvalidRange, 400, "Invalid range",
			"from is later than to, to is later than as_of, or offset and limit together are more than 1,000.",
			"Put the times in order. Beyond 1,000 users go on with next_cursor instead of an offset.",
		},
	}
}

// bodyKinds are about what is sent, and to where.
func bodyKinds() []kind {
	return []kind{
		{
			codeInvalidJSON, 400, "Invalid JSON",
			"The body is missing, did not arrive to its end, or is not one JSON value of the expected form, in UTF-8, with every name once. In NDJSON that is so for one line.",
			"Correct what the detail points to. After an error in NDJSON the lines before it are recorded; go on with the line that it names.",
		},
		{
			codeUnknownField, 400, "Unknown field",
			"The body has a field that this endpoint does not know. Names are case-sensitive.",
			"Correct the field's name, or leave it out.",
		},
		{
			codeTooManyItems, 400, "Too many items",
			"A bulk request holds at most 10,000 items, a lookup 1,000 users, a lookup by GET 100.",
			"Split the request. Bulk requests in NDJSON have no limit.",
		},
		{
			codeBodyTooLarge, 413, "Body too large",
			"A JSON body has at most 1 MiB, a line of NDJSON 4 KiB.",
			"Split the request, or send a bulk request as NDJSON.",
		},
		{
			codeUnsupportedMediaType, 415, "Unsupported media type",
			"The body is of a type that this endpoint does not read, not in UTF-8, or compressed.",
			"Send application/json, or application/x-ndjson to a bulk endpoint, without Content-Encoding.",
		},
		{
			codeConfirmationRequired, 400, "Confirmation required",
			"Deleting a namespace erases everyone in it, so its name has to be given twice.",
			"If you mean it, repeat the name in the parameter confirm.",
		},
		{
			codeNotFound, 404, "Not found",
			"There is no such path. A user never seen is no error: they are grey.",
			"Compare the path with the API at /docs/. A trailing slash counts, and a slash in a user's name is %2F.",
		},
		{
			codeMethodNotAllowed, 405, "Method not allowed",
			"The path exists, but not for this method.",
			"Use one of the methods in the header Allow.",
		},
	}
}

// callerKinds are about who asks, and how often.
func callerKinds() []kind {
	return []kind{
		{
			codeUnauthenticated, 401, "Unauthenticated",
			"The request has no API key and no token, or one that is not valid here.",
			"Send Authorization: Bearer and the key or token. If it has expired, get a new one; if it never worked, an operator finds the reason in the log, at level debug, under the request ID.",
		},
		{
			codeForbidden, 403, "Forbidden",
			"The key or token is valid, but not for this: it lacks the scope, or the namespace is not one of its own; or it is a token and this is about somebody else, or about many.",
			"The detail names the scope. An operator grants it to the key, or the issuer of the token names the namespace in it.",
		},
		{
			codeRateLimited, 429, "Rate limited",
			"The caller sends more requests than one caller may: one API key, one user, or one address if nothing else is known. Nothing was done.",
			"Ping as often as the answers to pings say, and send many pings or lookups in one request. An operator can set other limits.",
		},
	}
}

// serverKinds are about what the caller cannot mend.
func serverKinds() []kind {
	return []kind{
		{
			codeWrongKeyType, 500, "Wrong key type",
			"The namespace's key in Redis holds another type of value.",
			"An operator has to rename or delete that key, or choose another prefix.",
		},
		{
			codeStoreUnavailable, 503, "Store unavailable",
			"The store could not be asked, so nothing is known. Unknown is not offline.",
			"Keep showing what was known before, not grey, and try again. If it lasts, an operator looks at /readyz and the log.",
		},
		{
			codeStoreFull, 503, "Store full",
			"The disk, or Redis' memory, is full. Reading still works.",
			"An operator has to make room. Until then clients go on pinging at their usual pace.",
		},
		{
			codeOverloaded, 503, "Overloaded",
			"The server is asked for more than it can do in time. Nothing was done, but for the lines of NDJSON that the answer counts as recorded.",
			"Wait and try again. If it happens often, clients ping too often or servers are too few.",
		},
		{
			codeKeysUnavailable, 503, "Keys unavailable",
			"The token may be good, but the keys of its issuer could not be fetched to tell.",
			"Try again. If it lasts, an operator looks at the issuer, and at the log for the reason. API keys go on working.",
		},
		{
			codeInternal, 500, "Internal error",
			"A defect of the server. Its cause is in the log, under the request ID.",
			"Please report it with the request ID.",
		},
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

// ErrorCode is what the guides to errors say about a code. The texts are sentences in plain text.
type ErrorCode struct {
	Code    string
	Status  int    // of HTTP
	Title   string // what it means, in short
	Meaning string // what it means
	Remedy  string // what to do about it
	Retry   string // whether sending the same request again helps
}

// ErrorCodes returns all codes, in the order of the guides to errors.
func ErrorCodes() (codes []ErrorCode) {
	for _, k := range kinds() {
		codes = append(codes, ErrorCode{string(k.code), k.status, k.title, k.meaning, k.remedy, k.retry()})
	}
	return codes
}
