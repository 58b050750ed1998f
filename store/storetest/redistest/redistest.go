// Package redistest gives tests a real Redis of their own: a redis-server found on PATH, which starts and
// answers several times as fast as a container; otherwise one in a container, when a Docker engine answers and
// has, or can pull, the image. [Each] takes both.
//
// Environment variables:
//
//	LASTSEEN_TEST_REDIS_IMAGE  the image, instead of redis:7
//	LASTSEEN_TEST_REQUIRE      what has to be there, such as docker,redis: its absence
//	                           fails a test that otherwise would be skipped or fall back
package redistest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Enable says how to make tests with Redis run.
const Enable = "no Redis for tests: install redis-server, or start a Docker engine that has or can pull redis:7"

// way is one way of getting a Redis. It returns nil, and why, where it is not to be had.
type way struct {
	name  string // also what LASTSEEN_TEST_REQUIRE calls it
	start func(testing.TB) (addr string, why error)
}

func ways() []way {
	return []way{{"redis", startAnyProcess}, {"docker", startContainer}}
}

// Start returns the URL of a new and empty Redis that is gone after the test.
func Start(t testing.TB) string {
	t.Helper()
	for _, w := range ways() {
		if url, ok := w.try(t); ok {
			return url
		}
	}
	t.Skip(Enable)
	return ""
}

// Each runs the test once for every way of getting a Redis that is to be had here, with -short for one.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	found := false
	for _, w := range ways() {
		if found && testing.Short() {
			break
		}
		if url, ok := w.try(t); ok {
			found = true
			t.Run(w.name, func(t *testing.T) { test(t, url) })
		}
	}
	if !found {
		t.Skip(Enable)
	}
}

func (w way) try(t testing.TB) (url string, ok bool) {
	t.Helper()
	addr, why := w.start(t)
	if why == nil {
		awaitReady(t, addr)
		return "redis://" + addr, true
	}
	if required(w.name) {
		t.Fatalf("LASTSEEN_TEST_REQUIRE asks for %s: %v", w.name, why)
	}
	return "", false
}

func required(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("LASTSEEN_TEST_REQUIRE"), ","), name)
}

// awaitReady waits until the server answers.
func awaitReady(t testing.TB, addr string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	await(t, func() error { return client.Ping(context.Background()).Err() })
}

// awaitFor is how long a server may take for anything before the test fails.
const awaitFor = 30 * time.Second

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
