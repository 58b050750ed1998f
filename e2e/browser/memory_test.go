package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/store"
)

// heapInUse returns the bytes of a page's heap after a garbage collection.
func heapInUse(t *testing.T, b *browser) float64 {
	t.Helper()
	_, err := chromedp.Call(b.Ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	require.NoError(t, err)
	usage, err := chromedp.Call(b.Ctx, runtime.GetHeapUsage, cdp.Empty{})
	require.NoError(t, err)
	return usage.UsedSize
}

// manyDots is a page with dots, and how they change.
type manyDots struct {
	*scripted
	page *browser
	n    int // dots
}

// openDots opens a page with n dots, which counts their changes.
func (s *scripted) openDots(t *testing.T, n int) manyDots {
	t.Helper()
	d := manyDots{s, testbrowser.Open(t, s.pages), n}
	s.load(t, d.page, "", fmt.Sprintf(`
		for (let i = 0; i < %d; i++) {
			const dot = document.createElement("presence-dot")
			dot.setAttribute("user", "user " + i)
			dot.setAttribute("namespace", namespace)
			document.body.append(dot)
		}
		window.changes = 0
		document.addEventListener("presencechange", () => changes++)`, n))
	d.untilAll(t, "grey")
	return d
}

func (d manyDots) untilAll(t *testing.T, status string) {
	t.Helper()
	d.page.Do(t, until(fmt.Sprintf(`document.querySelectorAll("presence-dot:state(%s)").length == %d`, status, d.n)))
}

// change has all users come and go some times, and waits for the page each time.
func (d manyDots) change(t *testing.T, times int) {
	t.Helper()
	for range times {
		_, err := d.Ping(t.Context(), "chat", d.everyone(t))
		require.NoError(t, err)
		d.untilAll(t, "green")
		_, err = d.Leave(t.Context(), "chat", d.everyone(t))
		require.NoError(t, err)
		d.untilAll(t, "grey")
	}
}

func (d manyDots) everyone(t *testing.T) []store.PresenceEvent {
	t.Helper()
	now, err := d.Now(t.Context())
	require.NoError(t, err)
	all := make([]store.PresenceEvent, d.n)
	for i := range all {
		all[i] = store.PresenceEvent{User: fmt.Sprintf("user %d", i), At: now}
	}
	return all
}

// TestScriptMemory: a page with a thousand dots uses no more memory after an hour of changes, five a second. They come
// from the server as fast as it sends them, a thousand at a time.
func TestScriptMemory(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	d := s.openDots(t, 1000)
	d.change(t, 3) // until the browser has compiled what runs often
	before := heapInUse(t, d.page)
	d.change(t, 9)
	after := heapInUse(t, d.page)
	for range 20 { // what the browser uses meanwhile, it gives back
		after = min(after, heapInUse(t, d.page))
	}
	t.Logf("%.0f bytes before, %.0f after", before, after)
	require.LessOrEqual(t, after, 1.2*before)
	require.GreaterOrEqual(t, testbrowser.Evaluate[int](t, d.page, "changes"), 18_000)
	require.Equal(t, 1, s.connects())
}
