// Package testenv reports what tests can use on this machine and how much they repeat, and starts their processes. It
// is for tests only.
//
// Environment variables:
//
//	LASTSEEN_TEST_FULL     if it is set, tests run in full: also on every topology of Redis, with thousands of
//	                       races and long random walks. Otherwise they show each promise once, on the file
//	                       store and one Redis.
//	LASTSEEN_TEST_REQUIRE  what has to be on this machine, such as docker,redis: without it, tests fail instead
//	                       of being skipped
package testenv

import (
	"flag"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	fullVar    = "LASTSEEN_TEST_FULL"
	requireVar = "LASTSEEN_TEST_REQUIRE"
)

// Full reports whether tests run in full.
func Full() bool { return os.Getenv(fullVar) != "" }

// RequireFull skips a test that only repeats on more servers, or for longer, what another one shows, unless tests run
// in full.
func RequireFull(t testing.TB) {
	t.Helper()
	if !Full() {
		t.Skip("set " + fullVar + "=1 to run this test")
	}
}

// SkipWithRace skips a test if the race detector is on, for a reason.
func SkipWithRace(t testing.TB, why string) {
	t.Helper()
	if Race {
		t.Skip("with the race detector, " + why)
	}
}

// Choose returns how often, how many or how long: the first value if tests run in full, otherwise the second.
func Choose[T any](full, once T) T {
	if Full() {
		return full
	}
	return once
}

// Variants returns the variants with which a test repeats: all if tests run in full, otherwise the first.
func Variants[T any](all ...T) []T { return all[:Choose(len(all), 1)] }

// WaitInParallel lets eight tests run at a time, because most of them wait: for servers, browsers or clocks. TestMain
// calls it. The flag -parallel wins. The default HTTP client gets its own transport: servers of httptest that
// close also close the idle connections of the default transport, and one that another test has just taken fails its
// request.
func WaitInParallel() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	http.DefaultClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
}

// LimitWalks sets how often random tests repeat: n times if tests run in full, otherwise a fifth of that. TestMain
// calls it. The flag -rapid.checks wins.
func LimitWalks(n int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(Choose(n, n/5))); err != nil {
		panic(err)
	}
}

// Program returns the path of a program. Without it the test is skipped, or fails: see [Missing].
func Program(t testing.TB, name, part string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, part, err)
	}
	return path
}

// Missing skips a test because a part, such as nginx, is not on this machine. It fails the test if
// LASTSEEN_TEST_REQUIRE contains the name of the part.
func Missing(t testing.TB, part string, why error) {
	t.Helper()
	FailIfRequired(t, part, why)
	t.Skipf("this test needs %s: %v", part, why)
}

// FailIfRequired fails the test if LASTSEEN_TEST_REQUIRE contains the name of a part, which is not on this machine.
func FailIfRequired(t testing.TB, part string, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(requireVar), ","), part) {
		t.Fatalf("%s asks for %s: %v", requireVar, part, why)
	}
}
