package request

import (
	"io"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

// free is memory without a limit.
type free struct{}

func (free) Grow(int) error { return nil }
func (free) Shrink(int)     {}

// TestAnnouncedBodies checks that a Content-Length without a body allocates almost nothing.
func TestAnnouncedBodies(t *testing.T) {
	const bodies = 100
	form := Form{Max: 1 << 20, Items: 10_000, Each: 1}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bodies {
		r := httptest.NewRequest("POST", "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		r.ContentLength = form.Max
		kit.RequireProblem(t, form.Read(echo.New().NewContext(r, httptest.NewRecorder()), free{}, nil, Strict()))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(bodies*form.Max/10))
}

// TestNullItemsCount checks that a null item counts as much memory as any other.
func TestNullItemsCount(t *testing.T) {
	for _, sign := range []byte{'{', ',', ':'} {
		form := Form{Items: 10, Sign: sign, Each: 100}
		require.GreaterOrEqual(t, form.memory([]byte(`{"pings":[null,null,null]}`)), 3*form.Each)
	}
}
