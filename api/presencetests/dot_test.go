package presencetests

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
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

func getDot(w *apitest.Server, path string) (image dotImage) {
	w.T.Helper()
	r := w.Send("GET", path, "").Is(w.T, http.StatusOK)
	require.Equal(w.T, "image/svg+xml", r.Header.Get("Content-Type"))
	require.NoError(w.T, xml.Unmarshal([]byte(r.Body), &image), r.Body)
	require.Len(w.T, image.Paths, 1)
	return image
}

// shapeOf returns what a dot looks like: the path of its image, and how that is painted.
func shapeOf(dot lastseen.Dot) (path, paint string) {
	const disc = "M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z"
	shape := map[lastseen.Dot][2]string{
		lastseen.GreenDot:  {disc, "#2da44e"},
		lastseen.RedDot:    {disc + "M4 7h8v2H4Z", "#cf222e"},
		lastseen.YellowDot: {disc + "M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z", "#bf8700"},
		lastseen.GreyDot:   {disc + "M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z", "#6e7781"},
	}[dot]
	return shape[0], shape[1]
}

// TestDot checks what an image shows while a user pings, is silent, and leaves.
func TestDot(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	shows := func(dot lastseen.Dot, title string) {
		t.Helper()
		image := getDot(w, aliceDot)
		path, paint := shapeOf(dot)
		require.Equal(t, "alice "+title, image.Title)
		require.Equal(t, path, image.Paths[0].D)
		require.Equal(t, paint, image.Paths[0].Fill)
		require.Equal(t, "evenodd", image.Paths[0].Rule)
		require.Equal(t, "img", image.Role)
	}
	shows(lastseen.GreyDot, "is offline")
	w.Post(kit.AlicePing, "")
	shows(lastseen.GreenDot, "is online")
	w.Store.Set(kit.Now.Add(time.Minute))
	shows(lastseen.YellowDot, "was last seen 1 minute ago")
	w.Store.Set(kit.Now.Add(3*time.Minute + 59*time.Second))
	shows(lastseen.YellowDot, "was last seen 3 minutes ago")
	w.Store.Set(kit.Now.Add(25 * time.Hour))
	shows(lastseen.GreyDot, "was last seen 1 day ago")
	w.Post("/chat/users/alice/leave", "")
	shows(lastseen.GreyDot, "was last seen just now")
}

// TestDotOfDetails checks what an image shows of a user who has an availability or is idle. The text of a note is
// escaped.
func TestDotOfDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{Store: kit.FileStore(t)}
	w := apitest.NewServer(t, s)
	w.Post(kit.AlicePing, "")
	away := lastseen.AvailabilityState{Availability: lastseen.Away}
	busy := lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "<b>&"}
	idle := kit.Now - 1
	for _, step := range []struct {
		age          time.Duration
		availability lastseen.AvailabilityState
		idle         lastseen.Instant
		call         bool
		dot          lastseen.Dot
		title        string
	}{
		{0, lastseen.AvailabilityState{}, 0, false, lastseen.GreenDot, "is online"},
		{0, lastseen.AvailabilityState{Note: "back soon"}, 0, false, lastseen.GreenDot, "is online: back soon"},
		{0, lastseen.AvailabilityState{}, idle, false, lastseen.YellowDot, "is idle"},
		{0, away, 0, false, lastseen.YellowDot, "is away"},
		{0, away, idle, false, lastseen.YellowDot, "is away"},
		{0, busy, idle, false, lastseen.RedDot, "is busy: <b>&"},
		{time.Minute, lastseen.AvailabilityState{}, 0, false, lastseen.YellowDot, "was last seen 1 minute ago"},
		{time.Minute, lastseen.AvailabilityState{}, idle, false, lastseen.YellowDot, "is idle and was last seen 1 minute ago"},
		{time.Minute, away, 0, false, lastseen.YellowDot, "is away and was last seen 1 minute ago"},
		{time.Minute, busy, 0, false, lastseen.RedDot, "is busy and was last seen 1 minute ago: <b>&"},
		{time.Hour, busy, idle, false, lastseen.GreyDot, "was last seen 1 hour ago: <b>&"},
		{time.Hour, lastseen.AvailabilityState{}, idle, false, lastseen.GreyDot, "was last seen 1 hour ago"},
		{0, lastseen.AvailabilityState{}, idle, true, lastseen.RedDot, "is in a call"},
		{0, busy, 0, true, lastseen.RedDot, "is in a call: <b>&"},
		{time.Minute, away, 0, true, lastseen.RedDot, "is in a call and was last seen 1 minute ago"},
		{time.Hour, away, 0, true, lastseen.GreyDot, "was last seen 1 hour ago"},
	} {
		w.Store.Set(kit.Now.Add(step.age))
		d := store.Details{Availability: step.availability, IdleSince: step.idle}
		if step.call {
			d.InCallUntil = lastseen.MaxInstant
		}
		s.details = map[string]store.Details{"alice": d}
		image := getDot(w, aliceDot)
		path, paint := shapeOf(step.dot)
		require.Equal(t, "alice "+step.title, image.Title)
		require.Equal(t, []string{path, paint}, []string{image.Paths[0].D, image.Paths[0].Fill}, step.title)
	}
	s.details = map[string]store.Details{"zoe": {Availability: lastseen.AvailabilityState{Note: "on holiday"}}}
	require.Equal(t, "zoe is offline: on holiday", getDot(w, "/chat/users/zoe/dot.svg").Title)
}

// TestDotParameters checks the parameters: the size, and those of the lookup of a user.
func TestDotParameters(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post(kit.AlicePing, "")
	for query, size := range map[string]int{"": 16, "?size=8": 8, "?size=512": 512, "?_=1&size=64": 64} {
		image := getDot(w, aliceDot+query)
		require.Equal(t, []int{size, size}, []int{image.Width, image.Height}, query)
		require.Equal(t, "0 0 16 16", image.ViewBox)
	}
	green, _ := shapeOf(lastseen.GreenDot)
	w.Store.Set(kit.Now.Add(time.Hour))
	require.Equal(t, green, getDot(w, aliceDot+"?green=2h&yellow=3h").Paths[0].D)
	require.Equal(t, green, getDot(w, aliceDot+"?as_of=2026-11-20T12:00:30Z").Paths[0].D)
	for query, want := range map[string]problem.Code{
		"size=7": problem.InvalidParameter, "size=513": problem.InvalidParameter, "size=": problem.InvalidParameter,
		"size=16px": problem.InvalidParameter, "size=16&size=17": problem.InvalidParameter,
		"fill=red": problem.UnknownParameter,
		"green=0":  problem.InvalidDuration, "green=2s&yellow=1s": problem.InvalidThresholds,
		"as_of=soon": problem.InvalidTime,
	} {
		w.Fails(want, "GET", aliceDot+"?"+query, "")
	}
	w.Fails(problem.InvalidUser, "GET", "/chat/users/%00/dot.svg", "")
	w.Fails(problem.InvalidNamespace, "GET", "/.chat/users/alice/dot.svg", "")
}

// TestDotNotModified checks that an image is sent again as soon as it, or only its title, would differ.
func TestDotNotModified(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post(kit.AlicePing, "")
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
		w.Store.Set(kit.Now.Add(step.age))
		r := w.Send("GET", aliceDot, "", "If-None-Match: "+tag)
		require.Equal(t, step.want, r.Status, step.age)
		require.Equal(t, step.want == http.StatusNotModified, r.Body == "")
		tag = r.Header.Get("ETag")
		require.Regexp(t, `^W/"[A-Za-z0-9_-]{16}"$`, tag)
	}
	w.Send("GET", aliceDot+"?size=32", "", "If-None-Match: "+tag).Is(t, http.StatusOK, "another size")
}

// TestDotOfHostileNames checks that no name breaks out of the title, and that browsers neither sniff nor run the image.
func TestDotOfHostileNames(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, user := range []string{
		`</title><script>alert(1)</script>`, `"><x onload='y'`, `]]>&amp;<!--`, "a/b?c#d", "ü €\u200f\U0001f600", "dot.svg",
	} {
		path := "/chat/users/" + url.PathEscape(user) + "/dot.svg"
		require.Equal(t, user+" is offline", getDot(w, path).Title)
		r := w.Send("GET", path, "")
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'", r.Header.Get("Content-Security-Policy"))
		require.Equal(t, "cross-origin", r.Header.Get("Cross-Origin-Resource-Policy"))
	}
}
