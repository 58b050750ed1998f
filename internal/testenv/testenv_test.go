package testenv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// reports is a test that is skipped or fails without effect on the test that it is part of.
type reports struct {
	testing.TB
	skipped, failed string
}

func (r *reports) Helper() {}

func (r *reports) Skip(args ...any) { r.skipped = fmt.Sprint(args...) }

func (r *reports) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }

func (r *reports) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r) // the caller must not go on
}

// TestMissing: a missing program skips the test, or fails it if it is required.
func TestMissing(t *testing.T) {
	t.Setenv(requireVar, "docker,nginx")
	skips, fails := &reports{TB: t}, &reports{TB: t}
	Program(skips, "no-such-redis-server", "redis")
	require.Contains(t, skips.skipped, "needs redis")
	require.Panics(t, func() { Program(fails, "no-such-nginx", "nginx") })
	require.Contains(t, fails.failed, "LASTSEEN_TEST_REQUIRE asks for nginx")
	require.Empty(t, fails.skipped)
}

// TestFull: what repeats is skipped unless the variable is set.
func TestFull(t *testing.T) {
	r := &reports{TB: t}
	t.Setenv(fullVar, "1")
	RequireFull(r)
	require.Empty(t, r.skipped)
	require.Equal(t, 2, Choose(2, 1))
	require.Equal(t, []string{"a", "b"}, Variants("a", "b"))
	t.Setenv(fullVar, "")
	RequireFull(r)
	require.Contains(t, r.skipped, "LASTSEEN_TEST_FULL=1")
	require.Equal(t, 1, Choose(2, 1))
	require.Equal(t, []string{"a"}, Variants("a", "b"))
}
