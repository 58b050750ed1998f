package problem

import (
	"net/http"
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
	WebhookNotFound      Code = "webhook_not_found"
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

// Type is what all errors with one code have in common. The guide docs/errors.md explains each code.
type Type struct {
	Code   Code
	Status int    // of HTTP
	Title  string // short meaning
}

// Types returns all codes, in the order of the error guide.
func Types() []Type {
	return []Type{
		{InvalidNamespace, 400, "Invalid namespace"},
		{InvalidUser, 400, "Invalid user"},
		{InvalidTime, 400, "Invalid time"},
		{InvalidDuration, 400, "Invalid duration"},
		{InvalidThresholds, 400, "Invalid thresholds"},
		{InvalidParameter, 400, "Invalid parameter"},
		{UnknownParameter, 400, "Unknown parameter"},
		{InvalidCursor, 400, "Invalid cursor"},
		{InvalidRange, 400, "Invalid range"},
		{InvalidJSON, 400, "Invalid JSON"},
		{UnknownField, 400, "Unknown field"},
		{TooManyItems, 400, "Too many items"},
		{BodyTooLarge, 413, "Body too large"},
		{TooManyHeaders, 431, "Too many headers"},
		{UnsupportedMediaType, 415, "Unsupported media type"},
		{ConfirmationRequired, 400, "Confirmation required"},
		{NotFound, 404, "Not found"},
		{MethodNotAllowed, 405, "Method not allowed"},
		{Unauthenticated, 401, "Unauthenticated"},
		{Forbidden, 403, "Forbidden"},
		{RateLimited, 429, "Rate limited"},
		{InvalidDevice, 400, "Invalid device"},
		{DevicesUnavailable, 409, "Devices unavailable"},
		{InvalidAvailability, 400, "Invalid availability"},
		{InvalidNote, 400, "Invalid note"},
		{NoAvailability, 409, "No availability"},
		{AvailabilityNotReady, 503, "Availability not ready"},
		{NoContacts, 409, "No contacts"},
		{TooManyContacts, 409, "Too many contacts"},
		{ContactsChanged, 409, "Contacts changed meanwhile"},
		{InvalidCall, 400, "Invalid call"},
		{CallNotFound, 404, "Call not found"},
		{CallerBusy, 409, "Caller busy"},
		{CalleeBusy, 409, "Callee busy"},
		{CalleeUnavailable, 409, "Callee unavailable"},
		{CallRefused, 409, "Call refused"},
		{IdempotencyKeyReused, 422, "Idempotency key reused"},
		{TooManyCalls, 429, "Too many calls"},
		{CallTooSoon, 429, "Call too soon"},
		{NoCalls, 409, "No calls"},
		{WebhookNotFound, 404, "Webhook not found"},
		{UpgradeRequired, 426, "Upgrade required"},
		{UnknownFrame, 400, "Unknown frame"},
		{TimedOut, 408, "Timed out"},
		{ConnectionClosed, 410, "Connection closed"},
		{FeedUnavailable, 409, "Changes feed unavailable"},
		{WrongKeyType, 500, "Wrong key type"},
		{NamespaceMismatch, 500, "Namespace mismatch"},
		{StoreUnavailable, 503, "Store unavailable"},
		{StoreFull, 503, "Store full"},
		{Overloaded, 503, "Overloaded"},
		{KeysUnavailable, 503, "Keys unavailable"},
		{ShuttingDown, 503, "Shutting down"},
		{Internal, 500, "Internal error"},
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

// CloseCodes is what close codes are above the status of the same error.
const CloseCodes = 4000

// CloseCode returns the code of the close frame of a connection that ends with an error.
func (c Code) CloseCode() int { return CloseCodes + c.Type().Status }
