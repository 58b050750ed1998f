// Package redistest starts a real Redis for a test: a redis-server on PATH, which is several times as fast as a
// container; otherwise a container, if there is a Docker engine that has, or can pull, the image.
//
// The environment variable LASTSEEN_TEST_REDIS_IMAGE is the image, instead of redis:7. Package testenv has the others.
package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/internal/testenv"
)

// Enable explains how to run the tests that need Redis.
const Enable = "no Redis for tests: install redis-server, or start a Docker engine that has or can pull redis:7"

// provider starts a Redis, or returns why it cannot.
type provider struct {
	name  string // as in LASTSEEN_TEST_REQUIRE
	start func(testing.TB) (addr string, why error)
}

func providers() []provider {
	return []provider{{"redis", startAnyProcess}, {"docker", startContainer}}
}

// Start returns the URL of a new, empty Redis that stops with the test.
func Start(t testing.TB) string {
	t.Helper()
	for _, p := range providers() {
		if url, ok := p.try(t); ok {
			return url
		}
	}
	t.Skip(Enable)
	return ""
}

// StartContainer is Start in a container, also where there is a redis-server.
func StartContainer(t testing.TB) string {
	t.Helper()
	addr, why := startContainer(t)
	if why != nil {
		testenv.Missing(t, "docker", why)
	}
	awaitReady(t, addr)
	return "redis://" + addr
}

func (p provider) try(t testing.TB) (url string, ok bool) {
	t.Helper()
	addr, why := p.start(t)
	if why == nil {
		awaitReady(t, addr)
		return "redis://" + addr, true
	}
	testenv.FailIfRequired(t, p.name, why)
	return "", false
}

// awaitReady waits until the server responds.
func awaitReady(t testing.TB, addr string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	await(t, func() error { return client.Ping(context.Background()).Err() })
}

// awaitFor is how long a server may take for anything before the test fails: a Sentinel that got no processor time for
// two seconds does nothing for the next 30.
const awaitFor = 75 * time.Second

// await waits until try returns nil.
func await(t testing.TB, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(awaitFor); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			t.Fatalf("Redis is not ready in %s: %v", awaitFor, err)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
