package servertests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// badRequest is a request that has to be refused.
type badRequest struct {
	code               problem.Code
	method, path, body string
	headers            []string
}

func badRequests() (all []badRequest) {
	alice, bulk := "/chat/users/alice", "/chat/pings"
	ping := alice + "/ping"
	long := strings.Repeat("u", 257)
	many := func(n int) string { return `{"pings":[` + strings.Repeat(`{"user":"u"},`, n-1) + `{"user":"u"}]}` }
	gets := func(want problem.Code, paths ...string) {
		for _, path := range paths {
			all = append(all, badRequest{want, "GET", path, "", nil})
		}
	}
	posts := func(want problem.Code, path string, bodies ...string) {
		for _, body := range bodies {
			all = append(all, badRequest{want, "POST", path, body, nil})
		}
	}
	streams := func(want problem.Code, bodies ...string) {
		for _, body := range bodies {
			all = append(all, badRequest{want, "POST", bulk, body, []string{kit.NDJSON}})
		}
	}
	gets(problem.InvalidNamespace, "/"+strings.Repeat("n", 65), "/.hidden", "/a%2Fb/users", "//users")
	posts(problem.InvalidNamespace, "/caf%C3%A9/users/alice/ping", "")
	posts(problem.InvalidUser, "/chat/users/"+long+"/ping", "")
	posts(problem.InvalidUser, "/chat/users//ping", "")
	gets(problem.InvalidUser, "/chat/users/%00", "/chat/users/%ff", "/chat/users/%2e%2e", "/chat/users/a%C2%85b",
		"/chat/lookup?user=")
	posts(problem.InvalidUser, "/chat/lookup", `{"users":["alice",""]}`)
	posts(problem.InvalidUser, bulk, `{"pings":[{"user":"alice"},{"at":1}]}`)
	streams(problem.InvalidUser, `{"user":"."}`)
	posts(problem.InvalidTime, ping, `{"at":0}`, `{"at":-1}`, `{"at":"1969-12-31T23:59:59Z"}`, `{"at":1795176000000}`,
		`{"at":1795176005.001}`, `{"at":null}`, `{"at":true}`, `{"at":"yesterday"}`)
	posts(problem.InvalidTime, alice+"/leave", `{"at":"10000-01-01T00:00:00Z"}`)
	gets(problem.InvalidTime, alice+"?as_of=soon", alice+"?as_of=0", "/chat/users?from=2026-11-20T22:00:00+01:00") // + is a space
	gets(problem.InvalidDuration, alice+"?green=0", alice+"?yellow=11y", "/chat/counts?yellow=100000h")
	gets(problem.InvalidThresholds, alice+"?green=5m", "/chat/users?green=2s&yellow=1s")
	gets(problem.InvalidParameter, "/chat/users?limit=0", "/chat/users?limit=1001", "/chat/users?limit=ten",
		"/chat/users?offset=-1", "/chat/users?order=up", "/chat/users?status=Green", "/chat/users?limit=1&limit=1",
		"/chat/users?limit=%zz", "/chat/users?limit=1;order=oldest", "/chat/lookup", "/chat//users")
	gets(problem.UnknownParameter, "/chat/users?stauts=green", "/chat/counts?limit=1")
	posts(problem.UnknownParameter, ping+"?at=1", "")
	gets(problem.InvalidCursor, "/chat/users?cursor=", "/chat/users?cursor=AAAA", "?cursor=AAAA")
	gets(problem.InvalidRange, "/chat/users?from=20&to=10&as_of=30", "/chat/users?to=20&as_of=10",
		"/chat/counts?from=20&as_of=10", "/chat/users?offset=951", "/chat/users?offset=1&limit=1000")
	posts(problem.InvalidJSON, ping, `{"at":1`, `{"at":1}{}`, `{"at":1,"at":2}`, `null`, `[]`, `"x"`, ` `)
	posts(problem.InvalidJSON, bulk, "", `{}`, `{"pings":null}`, `{"pings":{}}`, `{"pings":[3]}`,
		`{"pings":[{"user":3}]}`,
		"{\"pings\":[{\"user\":\"\xff\"}]}", `{"pings":[{"user":"\ud800"}]}`, `{"pings":`+strings.Repeat("[", 20_000))
	posts(problem.InvalidJSON, "/chat/lookup", `{"users":"alice"}`, "")
	streams(problem.InvalidJSON, `{"user":"a"} {"user":"b"}`)
	posts(problem.UnknownField, ping, `{"time":1}`, `{"At":1}`)
	posts(problem.UnknownField, bulk, `{"leaves":[]}`)
	posts(problem.UnknownField, "/chat/leaves", `{"leaves":[{"user":"a","was":1}]}`)
	streams(problem.UnknownField, `{"user":"a","x":1}`)
	posts(problem.TooManyItems, bulk, many(10_001))
	posts(problem.TooManyItems, "/chat/lookup", `{"users":[`+strings.Repeat(`"u",`, 1000)+`"u"]}`)
	gets(problem.TooManyItems, "/chat/lookup?"+strings.Repeat("user=u&", 100)+"user=u")
	posts(problem.BodyTooLarge, bulk, `{"pings":[`+strings.Repeat(" ", 1<<20)+`]}`)
	streams(problem.BodyTooLarge, `{"user":"`+strings.Repeat("u", 4096)+`"}`, strings.Repeat("u", 100_000))
	posts(problem.BodyTooLarge, "/chat/lookup", `{"users":[`+strings.Repeat(" ", 512<<10)+`]}`)
	gets(problem.NotFound, "/", "/chat/", "/chat/nothing", alice+"/ping/more")
	posts(problem.NotFound, ping+"/", "")
	gets(problem.MethodNotAllowed, ping)
	for _, header := range []string{
		"Content-Type: application/xml", "Content-Type: application/json; charset=latin1", "Content-Type: ;",
		"Content-Encoding: gzip",
	} {
		all = append(all, badRequest{problem.UnsupportedMediaType, "POST", bulk, `{}`, []string{header}})
	}
	return append(all, []badRequest{
		{problem.TooManyHeaders, "GET", alice, "", manyHeaders(101)},
		{problem.TooManyHeaders, "OPTIONS", "/nothing", "", manyHeaders(101)},
		{problem.UnsupportedMediaType, "POST", ping, `{}`, []string{kit.NDJSON}},
		{problem.ConfirmationRequired, "DELETE", "/chat", "", nil},
		{problem.ConfirmationRequired, "DELETE", "/chat?confirm=", "", nil},
		{problem.ConfirmationRequired, "DELETE", "/chat?confirm=Chat", "", nil},
		{problem.NotFound, "PUT", alice + "/", "", nil},
		{problem.MethodNotAllowed, "PUT", alice, "", nil},
		{problem.MethodNotAllowed, "DELETE", "", "", nil},
		{problem.MethodNotAllowed, "PATCH", "/chat/lookup", "", nil},
	}...)
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
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Post("/chat/users/alice/ping", "")
		before := w.Send("GET", "/chat/users", "").Body
		for _, r := range badRequests() {
			w.Fails(r.code, r.method, r.path, r.body, r.headers...)
			require.Equal(t, before, w.Send("GET", "/chat/users", "").Body, "%s %s changed something", r.method, r.path)
		}
		require.Len(t, w.Get("")["namespaces"], 1)
		require.NotRegexp(t, "level=(INFO|WARN|ERROR)", w.Log.String(), "only at level debug")
	})
}

// storeErrors returns the errors of the store by the code that they have to become.
func storeErrors() map[problem.Code][]error {
	cause := errors.New("the cause")
	of := func(sentinels ...error) (wrapped []error) {
		for _, s := range sentinels {
			wrapped = append(wrapped, fmt.Errorf("%w: %w", s, cause))
		}
		return wrapped
	}
	return map[problem.Code][]error{
		problem.StoreUnavailable: of(store.ErrUnavailable, store.ErrClosed, context.DeadlineExceeded),
		problem.StoreFull:        of(store.ErrFull, store.ErrNamespaceLimit),
		problem.Overloaded:       of(store.ErrOverloaded),
		problem.WrongKeyType:     of(store.ErrWrongType),
		problem.NamespaceMismatch: append(of(store.ErrMismatch),
			&store.MismatchError{Namespace: "chat", Settings: []string{"redis-score-unit"}, Detail: "the cause"}),
		problem.Internal: {cause},
	}
}

// TestStoreErrors checks what callers and operators learn of an error of the store. One that only an operator can fix
// names the setting.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for want, causes := range storeErrors() {
		for _, cause := range causes {
			w := apitest.NewServer(t, kit.Failing(kit.FileStore(t), cause))
			replies := []kit.Response{w.Send("POST", "/chat/users/alice/ping", "")}
			if want != problem.StoreFull { // reading still works
				replies = append(replies, w.Send("GET", "/chat/users/alice", ""))
			}
			for _, r := range replies {
				refusal := r.Is(t, want.Type().Status).JSON(t)
				require.Equal(t, string(want), refusal["code"], "%v", cause)
				require.NotContains(t, r.Body, "grey", "unknown is not offline")
				require.NotContains(t, r.Body, "the cause", "internal causes are not sent")
				require.Contains(t, w.Log.String(), "the cause")
				require.Contains(t, w.Log.String(), refusal["request_id"])
				require.Equal(t, r.Status == http.StatusServiceUnavailable, r.Header.Get("Retry-After") != "")
			}
		}
	}
	for setting, cause := range map[string]error{
		"redis-shards and redis-key": &store.MismatchError{Settings: []string{"redis-shards", "redis-key"}},
		"max-namespaces":             store.ErrNamespaceLimit,
	} {
		w := apitest.NewServer(t, kit.Failing(kit.FileStore(t), cause))
		require.Contains(t, w.Send("POST", "/chat/users/alice/ping", "").JSON(t)["detail"], setting)
	}
}

// TestProbesShareAResult checks that a thousand concurrent readiness probes call the store once.
func TestProbesShareAResult(t *testing.T) {
	for _, outcome := range []error{nil, store.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			let := make(chan error)
			s := kit.HookedFileStore(t, func(ctx context.Context, _ string) error {
				asked.Add(1)
				select {
				case err := <-let:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			handler := api.New(api.Config{Store: s, Settings: api.Settings{}})
			var responded sync.WaitGroup
			var ready, failed atomic.Int64
			ask := func(ctx context.Context) {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/readyz", http.NoBody))
				switch w.Code {
				case http.StatusOK:
					ready.Add(1)
				case http.StatusServiceUnavailable:
					failed.Add(1)
				}
			}
			first, leave := context.WithCancel(t.Context())
			responded.Go(func() { ask(first) })
			synctest.Wait()
			for range 1000 {
				responded.Go(func() { ask(t.Context()) })
			}
			synctest.Wait()
			leave() // the one whose probe the others share
			synctest.Wait()
			let <- outcome
			responded.Wait()
			require.EqualValues(t, 1, asked.Load())
			if outcome == nil {
				require.EqualValues(t, 1001, ready.Load())
			} else {
				require.EqualValues(t, 1001, failed.Load())
			}
		})
	}
}

func TestProbes(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`,
		"/version": `{"version":"v0.0.0-test","go":"go"}`,
	} {
		r := w.SendTo("GET", path+"?probe=1", "").Is(t, http.StatusOK)
		require.JSONEq(t, want, r.Body)
	}
	require.NoError(t, w.Store.Close())
	w.SendTo("GET", "/readyz", "").Is(t, http.StatusServiceUnavailable)
	w.SendTo("GET", "/healthz", "").Is(t, http.StatusOK)
}
