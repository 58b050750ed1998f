package client_test

import (
	"context"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

// connect returns a client of a server, and a context that ends with the test.
func connect(t *testing.T, s *testserver.Server, o client.Options) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(s.URL, o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx, c
}

// eachStore runs a test with a server on each store.
func eachStore(t *testing.T, test func(ctx context.Context, t *testing.T, c *client.Client)) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, store []string) {
		ctx, c := connect(t, testserver.Start(t, store...), client.Options{})
		test(ctx, t, c)
	})
}

// TestEveryOperationHasAMethod: an operation of openapi.yaml is a method of its name.
func TestEveryOperationHasAMethod(t *testing.T) {
	other := map[string]string{
		"lookupUsersByQuery":  "LookupUsers",   // the same with another method of HTTP
		"followChangesByPost": "FollowChanges", // the same
		"connect":             "FollowChanges", // with StartPinger: what a WebSocket does, over HTTP
		"onPresenceChanged":   "",              // requests to a receiver: see Verifier
		"onPresenceReset":     "",
		"onPresenceSnapshot":  "",
		"onTest":              "",
	}
	found := 0
	for line := range strings.Lines(string(lastseen.OpenAPI("test"))) {
		operation, ok := strings.CutPrefix(strings.TrimSpace(line), "operationId: ")
		if !ok {
			continue
		}
		found++
		name, ok := other[operation]
		if !ok {
			name = strings.ToUpper(operation[:1]) + operation[1:]
		}
		if name != "" {
			_, ok = reflect.TypeFor[*client.Client]().MethodByName(name)
			require.True(t, ok, "the client has no method for %s", operation)
		}
	}
	require.Greater(t, found, 30)
}

// requests counts the requests of a client.
type requests struct {
	http.RoundTripper
	n atomic.Int64
}

func (r *requests) RoundTrip(q *http.Request) (*http.Response, error) {
	r.n.Add(1)
	return r.RoundTripper.RoundTrip(q)
}
