package main

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// heapInUse returns the bytes of a page's heap after a garbage collection.
func heapInUse(t *testing.T, b *browser) float64 {
	t.Helper()
	_, err := chromedp.Call(b.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	require.NoError(t, err)
	usage, err := chromedp.Call(b.ctx, runtime.GetHeapUsage, cdp.Empty{})
	require.NoError(t, err)
	return usage.UsedSize
}

// TestScriptMemory: a page with a thousand dots uses no more memory after an hour of changes, five a second. They come
// from the server as fast as it sends them, a thousand at a time.
func TestScriptMemory(t *testing.T) {
	t.Parallel()
	const dots, rounds = 1000, 18
	s := newScripted(t, scriptOptions{})
	b := openBrowser(t, s.pages)
	s.load(t, b, "", fmt.Sprintf(`
		for (let i = 0; i < %d; i++) {
			const dot = document.createElement("presence-dot")
			dot.setAttribute("user", "user " + i)
			dot.setAttribute("namespace", namespace)
			document.body.append(dot)
		}
		window.changes = 0
		document.addEventListener("presencechange", () => changes++)`, dots))
	b.do(t, until(fmt.Sprintf(`document.querySelectorAll("presence-dot:state(grey)").length == %d`, dots)))
	everyone := make([]store.Sighting, dots)
	turn := func(write func([]store.Sighting), status string) {
		now, err := s.Now(t.Context())
		require.NoError(t, err)
		for i := range everyone {
			everyone[i] = store.Sighting{User: fmt.Sprintf("user %d", i), At: now}
		}
		write(everyone)
		b.do(t, until(fmt.Sprintf(`document.querySelectorAll("presence-dot:state(%s)").length == %d`, status, dots)))
	}
	ping := func(all []store.Sighting) {
		_, err := s.Ping(t.Context(), "chat", all)
		require.NoError(t, err)
	}
	leave := func(all []store.Sighting) {
		_, err := s.Leave(t.Context(), "chat", all)
		require.NoError(t, err)
	}
	change := func(rounds int) {
		for range rounds / 2 {
			turn(ping, "green")
			turn(leave, "grey")
		}
	}
	change(6) // until the browser has compiled what runs often
	before := heapInUse(t, b)
	change(rounds)
	after := heapInUse(t, b)
	for range 20 { // what the browser uses meanwhile, it gives back
		after = min(after, heapInUse(t, b))
	}
	t.Logf("%.0f bytes before, %.0f after", before, after)
	require.LessOrEqual(t, after, 1.2*before)
	require.GreaterOrEqual(t, evaluate[int](t, b, "changes"), dots*rounds)
	require.Equal(t, 1, s.connects())
}
