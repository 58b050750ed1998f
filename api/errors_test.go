package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// badRequest is a request that has to be refused.
type badRequest struct {
	code               code
	method, path, body string
	headers            []string
}

func badRequests() []badRequest {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	alice, bulk := "/chat/users/alice", "/chat/pings"
	ping := alice + "/ping"
	long := strings.Repeat("u", 257)
	many := func(n int) string { return `{"pings":[` + strings.Repeat(`{"user":"u"},`, n-1) + `{"user":"u"}]}` }
	return []badRequest{
		{codeInvalidNamespace, get, "/" + strings.Repeat("n", 65), "", nil},
		{codeInvalidNamespace, get, "/.hidden", "", nil},
		{codeInvalidNamespace, get, "/a%2Fb/users", "", nil},
		{codeInvalidNamespace, get, "//users", "", nil},
		{codeInvalidNamespace, post, "/caf%C3%A9/users/alice/ping", "", nil},
		{codeInvalidUser, post, "/chat/users/" + long + "/ping", "", nil},
		{codeInvalidUser, post, "/chat/users//ping", "", nil},
		{codeInvalidUser, get, "/chat/users/%00", "", nil},
		{codeInvalidUser, get, "/chat/users/%ff", "", nil},
		{codeInvalidUser, get, "/chat/users/%2e%2e", "", nil},
		{codeInvalidUser, get, "/chat/users/a%C2%85b", "", nil},
		{codeInvalidUser, get, "/chat/lookup?user=", "", nil},
		{codeInvalidUser, post, "/chat/lookup", `{"users":["alice",""]}`, nil},
		{codeInvalidUser, post, bulk, `{"pings":[{"user":"alice"},{"at":1}]}`, nil},
		{codeInvalidUser, post, bulk, `{"user":"."}`, []string{ndjson}},
		{codeInvalidTime, post, ping, `{"at":0}`, nil},
		{codeInvalidTime, post, ping, `{"at":-1}`, nil},
		{codeInvalidTime, post, ping, `{"at":"1969-12-31T23:59:59Z"}`, nil},
		{codeInvalidTime, post, ping, `{"at":1795176000000}`, nil},
		{codeInvalidTime, post, ping, `{"at":1795176005.001}`, nil},
		{codeInvalidTime, post, ping, `{"at":null}`, nil},
		{codeInvalidTime, post, ping, `{"at":true}`, nil},
		{codeInvalidTime, post, ping, `{"at":"yesterday"}`, nil},
		{codeInvalidTime, post, alice + "/leave", `{"at":"10000-01-01T00:00:00Z"}`, nil},
		{codeInvalidTime, get, alice + "?as_of=soon", "", nil},
		{codeInvalidTime, get, alice + "?as_of=0", "", nil},
		{codeInvalidTime, get, "/chat/users?from=2026-11-20T22:00:00+01:00", "", nil}, // + is a space
		{codeInvalidDuration, get, alice + "?green=0", "", nil},
		{codeInvalidDuration, get, alice + "?yellow=11y", "", nil},
		{codeInvalidDuration, get, "/chat/counts?yellow=100000h", "", nil},
		{codeInvalidThresholds, get, alice + "?green=5m", "", nil},
		{codeInvalidThresholds, get, "/chat/users?green=2s&yellow=1s", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=0", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=1001", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=ten", "", nil},
		{codeInvalidParameter, get, "/chat/users?offset=-1", "", nil},
		{codeInvalidParameter, get, "/chat/users?order=up", "", nil},
		{codeInvalidParameter, get, "/chat/users?status=Green", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=1&limit=1", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=%zz", "", nil},
		{codeInvalidParameter, get, "/chat/users?limit=1;order=oldest", "", nil},
		{codeInvalidParameter, get, "/chat/lookup", "", nil},
		{codeInvalidParameter, get, "/chat//users", "", nil},
		{codeUnknownParameter, get, "/chat/users?stauts=green", "", nil},
		{codeUnknownParameter, post, ping + "?at=1", "", nil},
		{codeUnknownParameter, get, "/chat/counts?limit=1", "", nil},
		{codeInvalidCursor, get, "/chat/users?cursor=", "", nil},
		{codeInvalidCursor, get, "/chat/users?cursor=AAAA", "", nil},
		{codeInvalidCursor, get, "?cursor=AAAA", "", nil},
		{codeInvalidRange, get, "/chat/users?from=20&to=10&as_of=30", "", nil},
		{codeInvalidRange, get, "/chat/users?to=20&as_of=10", "", nil},
		{codeInvalidRange, get, "/chat/counts?from=20&as_of=10", "", nil},
		{codeInvalidRange, get, "/chat/users?offset=951", "", nil},
		{codeInvalidRange, get, "/chat/users?offset=1&limit=1000", "", nil},
		{codeInvalidJSON, post, ping, `{"at":1`, nil},
		{codeInvalidJSON, post, ping, `{"at":1}{}`, nil},
		{codeInvalidJSON, post, ping, `{"at":1,"at":2}`, nil},
		{codeInvalidJSON, post, ping, `null`, nil},
		{codeInvalidJSON, post, ping, `[]`, nil},
		{codeInvalidJSON, post, ping, `"x"`, nil},
		{codeInvalidJSON, post, ping, ` `, nil},
		{codeInvalidJSON, post, bulk, "", nil},
		{codeInvalidJSON, post, bulk, `{}`, nil},
		{codeInvalidJSON, post, bulk, `{"pings":null}`, nil},
		{codeInvalidJSON, post, bulk, `{"pings":{}}`, nil},
		{codeInvalidJSON, post, bulk, `{"pings":[3]}`, nil},
		{codeInvalidJSON, post, bulk, `{"pings":[{"user":3}]}`, nil},
		{codeInvalidJSON, post, bulk, "{\"pings\":[{\"user\":\"\xff\"}]}", nil},
		{codeInvalidJSON, post, bulk, `{"pings":[{"user":"\ud800"}]}`, nil},
		{codeInvalidJSON, post, bulk, `{"pings":` + strings.Repeat("[", 20_000), nil},
		{codeInvalidJSON, post, "/chat/lookup", `{"users":"alice"}`, nil},
		{codeInvalidJSON, post, "/chat/lookup", "", nil},
		{codeInvalidJSON, post, bulk, `{"user":"a"} {"user":"b"}`, []string{ndjson}},
		{codeUnknownField, post, ping, `{"time":1}`, nil},
		{codeUnknownField, post, ping, `{"At":1}`, nil},
		{codeUnknownField, post, bulk, `{"leaves":[]}`, nil},
		{codeUnknownField, post, "/chat/leaves", `{"leaves":[{"user":"a","was":1}]}`, nil},
		{codeUnknownField, post, bulk, `{"user":"a","x":1}`, []string{ndjson}},
		{codeTooManyItems, post, bulk, many(10_001), nil},
		{codeTooManyItems, post, "/chat/lookup", `{"users":[` + strings.Repeat(`"u",`, 1000) + `"u"]}`, nil},
		{codeTooManyItems, get, "/chat/lookup?" + strings.Repeat("user=u&", 100) + "user=u", "", nil},
		{codeBodyTooLarge, post, bulk, `{"pings":[` + strings.Repeat(" ", 1<<20) + `]}`, nil},
		{codeBodyTooLarge, post, bulk, `{"user":"` + strings.Repeat("u", 4096) + `"}`, []string{ndjson}},
		{codeBodyTooLarge, post, bulk, strings.Repeat("u", 100_000), []string{ndjson}},
		{codeBodyTooLarge, post, "/chat/lookup", `{"users":[` + strings.Repeat(" ", 512<<10) + `]}`, nil},
		{codeTooManyHeaders, get, alice, "", manyHeaders(101)},
		{codeTooManyHeaders, http.MethodOptions, "/nothing", "", manyHeaders(101)},
		{codeUnsupportedMediaType, post, bulk, `{}`, []string{"Content-Type: application/xml"}},
		{codeUnsupportedMediaType, post, bulk, `{}`, []string{"Content-Type: application/json; charset=latin1"}},
		{codeUnsupportedMediaType, post, bulk, `{}`, []string{"Content-Type: ;"}},
		{codeUnsupportedMediaType, post, bulk, `{}`, []string{"Content-Encoding: gzip"}},
		{codeUnsupportedMediaType, post, ping, `{}`, []string{ndjson}},
		{codeConfirmationRequired, del, "/chat", "", nil},
		{codeConfirmationRequired, del, "/chat?confirm=", "", nil},
		{codeConfirmationRequired, del, "/chat?confirm=Chat", "", nil},
		{codeNotFound, get, "/", "", nil},
		{codeNotFound, get, "/chat/", "", nil},
		{codeNotFound, post, ping + "/", "", nil},
		{codeNotFound, http.MethodPut, alice + "/", "", nil},
		{codeNotFound, get, "/chat/nothing", "", nil},
		{codeNotFound, get, alice + "/ping/more", "", nil},
		{codeMethodNotAllowed, http.MethodPut, alice, "", nil},
		{codeMethodNotAllowed, get, ping, "", nil},
		{codeMethodNotAllowed, del, "", "", nil},
		{codeMethodNotAllowed, http.MethodPatch, "/chat/lookup", "", nil},
	}
}

// manyHeaders returns n headers, half of them with the same name.
func manyHeaders(n int) (headers []string) {
	for i := range n / 2 {
		headers = append(headers, fmt.Sprintf("X-%d: 1", i), "X-Same: 1")
	}
	return headers
}

// TestBadRequests sends every request that has to be refused, and checks that the data does not change.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/users/alice/ping", "")
		before := w.send(http.MethodGet, "/chat/users", "").body
		for _, r := range badRequests() {
			w.fails(r.code, r.method, r.path, r.body, r.headers...)
			require.Equal(t, before, w.send(http.MethodGet, "/chat/users", "").body, "%s %s changed something",
				r.method, r.path)
		}
		require.Len(t, w.get("")["namespaces"], 1)
		require.NotRegexp(t, "level=(INFO|WARN|ERROR)", w.log.String(), "only at level debug")
	})
}

// storeErrors returns the errors of the store by the code that they have to become.
func storeErrors() map[code][]error {
	cause := errors.New("the cause")
	of := func(sentinels ...error) (wrapped []error) {
		for _, s := range sentinels {
			wrapped = append(wrapped, fmt.Errorf("%w: %w", s, cause))
		}
		return wrapped
	}
	return map[code][]error{
		codeStoreUnavailable: of(store.ErrUnavailable, store.ErrClosed, context.DeadlineExceeded),
		codeStoreFull:        of(store.ErrFull, store.ErrNamespaceLimit),
		codeOverloaded:       of(store.ErrOverloaded),
		codeWrongKeyType:     of(store.ErrWrongType),
		codeNamespaceMismatch: append(of(store.ErrMismatch),
			&store.MismatchError{Namespace: "chat", Settings: []string{"redis-score-unit"}, Detail: "the cause"}),
		codeInternal: {cause},
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for want, causes := range storeErrors() {
		for _, cause := range causes {
			w := newTestServer(t, &errStore{Store: fileStore(t), err: cause})
			replies := []testResponse{w.send(http.MethodPost, "/chat/users/alice/ping", "")}
			if want != codeStoreFull { // reading still works
				replies = append(replies, w.send(http.MethodGet, "/chat/users/alice", ""))
			}
			for _, r := range replies {
				problem := r.json(t)
				require.Equal(t, string(want), problem["code"], "%v", cause)
				require.Equal(t, want.problemType().Status, r.status)
				require.NotContains(t, r.body, "grey", "unknown is not offline")
				require.NotContains(t, r.body, "the cause", "internal causes are not sent")
				require.Contains(t, w.log.String(), "the cause")
				require.Contains(t, w.log.String(), problem["request_id"])
				require.Equal(t, r.status == http.StatusServiceUnavailable, r.header.Get("Retry-After") != "")
			}
		}
	}
}

// TestStoreErrorsNameSettings checks that an error that only an operator can fix names the setting.
func TestStoreErrorsNameSettings(t *testing.T) {
	for setting, cause := range map[string]error{
		"redis-shards and redis-key": &store.MismatchError{Settings: []string{"redis-shards", "redis-key"}},
		"max-namespaces":             store.ErrNamespaceLimit,
	} {
		w := newTestServer(t, &errStore{Store: fileStore(t), err: cause})
		problem := w.send(http.MethodPost, "/chat/users/alice/ping", "").json(t)
		require.Contains(t, problem["detail"], setting)
	}
}

// TestEveryCodeIsTested fails for a code that no test above covers.
func TestEveryCodeIsTested(t *testing.T) {
	// In TestLimits, TestDrain, TestNoFeed, TestInvalidDevices, TestDevicesUnavailable, TestAvailabilityErrors,
	// TestNoAvailability, TestNotReady, TestNoContacts and TestContactsPages.
	provoked := map[code]bool{
		codeRateLimited: true, codeShuttingDown: true, codeFeedUnavailable: true, codeInvalidDevice: true,
		codeDevicesUnavailable: true, codeInvalidAvailability: true, codeInvalidNote: true, codeNoAvailability: true,
		codeAvailabilityNotReady: true, codeNoContacts: true, codeTooManyContacts: true,
	}
	for _, c := range []code{codeUpgradeRequired, codeUnknownFrame, codeTimedOut, codeConnectionClosed} {
		provoked[c] = true // in TestConnect…
	}
	for _, problem := range callProblems() {
		provoked[problem.Code] = true // in TestCallErrors and TestEveryDocumentedResponse
	}
	for _, r := range badRequests() {
		provoked[r.code] = true
	}
	for c := range storeErrors() {
		provoked[c] = true
	}
	for response := range refusals(t, fileStore(t), []call{{
		method: http.MethodGet,
		path:   "/v1/namespaces/chat/counts",
	}}) {
		provoked[code(response[strings.LastIndex(response, " ")+1:])] = true
	}
	for _, k := range ErrorCodes() {
		require.True(t, provoked[k.Code], k.Code)
	}
	require.Len(t, provoked, len(ErrorCodes()))
}

// requireProblem checks that an error is one that callers may see: a client error with text of bounded length.
func requireProblem(t *testing.T, err error) *apiError {
	t.Helper()
	var problem *apiError
	require.ErrorAs(t, err, &problem)
	require.Less(t, problem.code.problemType().Status, http.StatusInternalServerError, problem.Error())
	require.True(t, utf8.ValidString(problem.detail), problem.detail)
	require.Less(t, len(problem.detail), 1<<10, problem.detail)
	return problem
}
