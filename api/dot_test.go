package api

import (
	"encoding/xml"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

const aliceDot = "/chat/users/alice/dot.svg"

// dotImage is what tests read of an image.
type dotImage struct {
	XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	Width   int      `xml:"width,attr"`
	Height  int      `xml:"height,attr"`
	ViewBox string   `xml:"viewBox,attr"`
	Role    string   `xml:"role,attr"`
	Title   string   `xml:"title"`
	Paths   []struct {
		Fill string `xml:"fill,attr"`
		Rule string `xml:"fill-rule,attr"`
		D    string `xml:"d,attr"`
	} `xml:"path"`
}

// getDot returns the image at a path.
func (w *testServer) getDot(path string) (image dotImage) {
	w.t.Helper()
	r := w.send("GET", path, "").is(w.t, http.StatusOK)
	require.Equal(w.t, "image/svg+xml", r.header.Get("Content-Type"))
	require.NoError(w.t, xml.Unmarshal([]byte(r.body), &image), r.body)
	require.Len(w.t, image.Paths, 1)
	return image
}

// TestDot checks what an image shows while a user pings, is silent, and leaves.
func TestDot(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	shows := func(dot lastseen.Dot, title string) {
		t.Helper()
		image := w.getDot(aliceDot)
		path, paint := dotShape(dot)
		require.Equal(t, "alice "+title, image.Title)
		require.Equal(t, path, image.Paths[0].D)
		require.Equal(t, paint, image.Paths[0].Fill)
		require.Equal(t, "evenodd", image.Paths[0].Rule)
		require.Equal(t, "img", image.Role)
	}
	shows(lastseen.GreyDot, "is offline")
	w.post(alicePing, "")
	shows(lastseen.GreenDot, "is online")
	w.store.set(testNow.Add(time.Minute))
	shows(lastseen.YellowDot, "was last seen 1 minute ago")
	w.store.set(testNow.Add(3*time.Minute + 59*time.Second))
	shows(lastseen.YellowDot, "was last seen 3 minutes ago")
	w.store.set(testNow.Add(25 * time.Hour))
	shows(lastseen.GreyDot, "was last seen 1 day ago")
	w.post("/chat/users/alice/leave", "")
	shows(lastseen.GreyDot, "was last seen just now")
}

// TestDotOfDetails checks what an image shows of a user who says something or is idle. The text of a note is escaped.
func TestDotOfDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{Store: fileStore(t)}
	w := newTestServer(t, s)
	w.post(alicePing, "")
	away, busy := lastseen.Said{Availability: lastseen.Away}, lastseen.Said{Availability: lastseen.Busy, Note: "<b>&"}
	idle := testNow - 1
	for _, step := range []struct {
		age   time.Duration
		said  lastseen.Said
		idle  lastseen.Instant
		call  bool
		dot   lastseen.Dot
		title string
	}{
		{0, lastseen.Said{}, 0, false, lastseen.GreenDot, "is online"},
		{0, lastseen.Said{Note: "back soon"}, 0, false, lastseen.GreenDot, "is online: back soon"},
		{0, lastseen.Said{}, idle, false, lastseen.YellowDot, "is idle"},
		{0, away, 0, false, lastseen.YellowDot, "is away"},
		{0, away, idle, false, lastseen.YellowDot, "is away"},
		{0, busy, idle, false, lastseen.RedDot, "is busy: <b>&"},
		{time.Minute, lastseen.Said{}, 0, false, lastseen.YellowDot, "was last seen 1 minute ago"},
		{time.Minute, lastseen.Said{}, idle, false, lastseen.YellowDot, "is idle and was last seen 1 minute ago"},
		{time.Minute, away, 0, false, lastseen.YellowDot, "is away and was last seen 1 minute ago"},
		{time.Minute, busy, 0, false, lastseen.RedDot, "is busy and was last seen 1 minute ago: <b>&"},
		{time.Hour, busy, idle, false, lastseen.GreyDot, "was last seen 1 hour ago: <b>&"},
		{time.Hour, lastseen.Said{}, idle, false, lastseen.GreyDot, "was last seen 1 hour ago"},
		{0, lastseen.Said{}, idle, true, lastseen.RedDot, "is in a call"},
		{0, busy, 0, true, lastseen.RedDot, "is in a call: <b>&"},
		{time.Minute, away, 0, true, lastseen.RedDot, "is in a call and was last seen 1 minute ago"},
		{time.Hour, away, 0, true, lastseen.GreyDot, "was last seen 1 hour ago"},
	} {
		w.store.set(testNow.Add(step.age))
		d := store.Details{Said: step.said, IdleSince: step.idle}
		if step.call {
			d.InCallUntil = lastseen.MaxInstant
		}
		s.details = map[string]store.Details{"alice": d}
		image := w.getDot(aliceDot)
		path, paint := dotShape(step.dot)
		require.Equal(t, "alice "+step.title, image.Title)
		require.Equal(t, []string{path, paint}, []string{image.Paths[0].D, image.Paths[0].Fill}, step.title)
	}
	s.details = map[string]store.Details{"zoe": {Said: lastseen.Said{Note: "on holiday"}}}
	require.Equal(t, "zoe is offline: on holiday", w.getDot("/chat/users/zoe/dot.svg").Title)
}

// TestDotParameters checks the parameters: the size, and those of the lookup of a user.
func TestDotParameters(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	for query, size := range map[string]int{"": 16, "?size=8": 8, "?size=512": 512, "?_=1&size=64": 64} {
		image := w.getDot(aliceDot + query)
		require.Equal(t, []int{size, size}, []int{image.Width, image.Height}, query)
		require.Equal(t, "0 0 16 16", image.ViewBox)
	}
	green, _ := dotShape(lastseen.GreenDot)
	w.store.set(testNow.Add(time.Hour))
	require.Equal(t, green, w.getDot(aliceDot + "?green=2h&yellow=3h").Paths[0].D)
	require.Equal(t, green, w.getDot(aliceDot + "?as_of=2026-11-20T12:00:30Z").Paths[0].D)
	for query, want := range map[string]problem.Code{
		"size=7": problem.InvalidParameter, "size=513": problem.InvalidParameter, "size=": problem.InvalidParameter,
		"size=16px": problem.InvalidParameter, "size=16&size=17": problem.InvalidParameter,
		"fill=red": problem.UnknownParameter,
		"green=0":  problem.InvalidDuration, "green=2s&yellow=1s": problem.InvalidThresholds,
		"as_of=soon": problem.InvalidTime,
	} {
		w.fails(want, "GET", aliceDot+"?"+query, "")
	}
	w.fails(problem.InvalidUser, "GET", "/chat/users/%00/dot.svg", "")
	w.fails(problem.InvalidNamespace, "GET", "/.chat/users/alice/dot.svg", "")
}

// TestDotNotModified checks that an image is sent again as soon as it, or only its title, would differ.
func TestDotNotModified(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	tag := ""
	for _, step := range []struct {
		age  time.Duration
		want int
	}{
		{0, http.StatusOK},
		{30 * time.Second, http.StatusNotModified},
		{time.Minute, http.StatusOK},
		{119 * time.Second, http.StatusNotModified},
		{2 * time.Minute, http.StatusOK},
	} {
		w.store.set(testNow.Add(step.age))
		r := w.send("GET", aliceDot, "", "If-None-Match: "+tag)
		require.Equal(t, step.want, r.status, step.age)
		require.Equal(t, step.want == http.StatusNotModified, r.body == "")
		tag = r.header.Get("ETag")
		require.Regexp(t, `^W/"[A-Za-z0-9_-]{16}"$`, tag)
	}
	w.send("GET", aliceDot+"?size=32", "", "If-None-Match: "+tag).is(t, http.StatusOK, "another size")
}

// TestDotOfHostileNames checks that no name breaks out of the title, and that browsers neither sniff nor run the image.
func TestDotOfHostileNames(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, user := range []string{
		`</title><script>alert(1)</script>`, `"><x onload='y'`, `]]>&amp;<!--`, "a/b?c#d", "ü €\u200f\U0001f600", "dot.svg",
	} {
		path := "/chat/users/" + url.PathEscape(user) + "/dot.svg"
		require.Equal(t, user+" is offline", w.getDot(path).Title)
		r := w.send("GET", path, "")
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'", r.header.Get("Content-Security-Policy"))
		require.Equal(t, "cross-origin", r.header.Get("Cross-Origin-Resource-Policy"))
	}
}

// TestDotWords checks the times in titles at the ends of each unit.
func TestDotWords(t *testing.T) {
	t.Parallel()
	const minute, day = 60_000, 24 * 60 * 60_000
	for age, want := range map[lastseen.Instant]string{
		-5000: "just now", 0: "just now", minute - 1: "just now", minute: "1 minute ago",
		2*minute - 1: "1 minute ago", 2 * minute: "2 minutes ago", 60*minute - 1: "59 minutes ago",
		60 * minute: "1 hour ago", day - 1: "23 hours ago", day: "1 day ago", 30*day - 1: "29 days ago",
		30 * day: "1 month ago", 365*day - 1: "12 months ago", 365 * day: "1 year ago",
		9000 * 365 * day: "9000 years ago",
	} {
		require.Equal(t, want, ago(age))
	}
}

// TestDotColors measures the contrast of each dot on white and on a dark page: WCAG asks for 3:1. It also checks that
// the elements in lastseen.js draw the same shapes in the same colours.
func TestDotColors(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("web/lastseen/elements.js")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, dot := range []lastseen.Dot{lastseen.GreenDot, lastseen.YellowDot, lastseen.RedDot, lastseen.GreyDot} {
		path, paint := dotShape(dot)
		for _, page := range []string{"#ffffff", "#111111"} {
			require.GreaterOrEqual(t, contrast(t, paint, page), 3.0, "%s on %s", dot, page)
		}
		require.False(t, seen[path] || seen[paint], "%s looks like another dot", dot)
		seen[path], seen[paint] = true, true
		require.Contains(t, string(script), path[len(disc):], dot)
		require.Contains(t, string(script), paint, dot)
	}
	require.Contains(t, string(script), disc)
}

// contrast returns the contrast of two colours, #rrggbb, by WCAG 2.
func contrast(t *testing.T, one, other string) float64 {
	t.Helper()
	luminance := func(paint string) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(paint[1+2*i:3+2*i], 16, 8)
			require.NoError(t, err)
			c := float64(n) / 255
			if c <= 0.04045 {
				sum += weight * c / 12.92
			} else {
				sum += weight * math.Pow((c+0.055)/1.055, 2.4)
			}
		}
		return sum
	}
	a, b := luminance(one), luminance(other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}
