package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// dot returns the HTML of an element with a user of the namespace chat and more attributes.
func (s *scripted) dot(user string, attributes ...string) string {
	return fmt.Sprintf(`<presence-dot url=%q namespace="chat" user=%q %s></presence-dot>`,
		s.server.URL, user, strings.Join(attributes, " "))
}

// spoken returns what a screen reader says of the elements with a role: their names, in their order.
func spoken(t *testing.T, b *browser, role string) []string {
	t.Helper()
	names, err := namesOf(b.Ctx, role)
	require.NoError(t, err)
	return names
}

// namesOf returns the names of the elements with a role.
func namesOf(ctx context.Context, role string) (names []string, err error) {
	nodes, err := accessible(ctx)
	for _, node := range nodes {
		if node.role == role {
			names = append(names, node.name)
		}
	}
	return names, err
}

// untilSpoken waits until a screen reader says something of the elements with the role img.
func untilSpoken(want ...string) step {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		for {
			names, err := namesOf(ctx, "image")
			if err == nil && slices.Equal(names, want) {
				return chromedp.Void{}, nil
			}
			select {
			case <-ctx.Done():
				return chromedp.Void{}, fmt.Errorf("images are %q instead of %q: %w", names, want, ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// crowd are four users of different statuses.
func (s *scripted) crowd(t *testing.T) {
	t.Helper()
	s.pingedAgo(t, "alice", 0)
	s.pingedAgo(t, "bob", 3*time.Minute+5*time.Second)
	s.pingedAgo(t, "carol", 150*time.Minute)
	s.leaves(t, "dave")
}

// TestDotsSpeak: each status has a role and a name in words, and the same words for those who point at a dot.
func TestDotsSpeak(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, s.dot("alice")+s.dot("bob")+s.dot("carol", `label="Carol {ago} $&amp;"`)+s.dot("dave")+s.dot("zoe")+
		`<presence-dot user="nobody"></presence-dot><presence-dot></presence-dot>`, "")
	want := []string{
		"alice, online", "bob, last seen 3 minutes ago", "Carol {ago} $&, last seen 2 hours ago",
		"dave, last seen just now", "zoe, offline", "nobody, status unknown", "status unknown",
	}
	b.Do(t, untilSpoken(want...))
	require.Equal(t, want, testbrowser.Evaluate[[]string](t, b,
		`[...document.querySelectorAll("presence-dot")].map(dot => dot.shadowRoot.querySelector("title").textContent)`))
	require.Empty(t, s.complaints(b))
}

// TestDotsSpeakLanguages: the words are those of the language of the element, and of the page's texts.
func TestDotsSpeakLanguages(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, `<div lang="de-AT">`+s.dot("alice")+s.dot("bob")+s.dot("carol", `lang="pt-BR"`)+s.dot("dave")+`</div><div>`+
		s.dot("bob", `lang="fr"`)+s.dot("bob", `lang="x_y"`)+s.dot("bob", `lang=""`)+`</div>`, `
		const { texts } = await import(url + "/lastseen.js")
		texts.de = { online: "ist da", seen: "war {ago} da", offline: "ist nicht da", now: "gerade" }
		texts["pt-BR"] = { ...texts.en, seen: "visto {ago}" }`)
	b.Do(t, untilSpoken("alice, ist da", "bob, war vor 3 Minuten da", "carol, visto há 2 horas", "dave, war gerade da",
		"bob, last seen il y a 3 minutes", "bob, last seen 3 minutes ago", "bob, last seen 3 minutes ago"))
	require.Empty(t, s.complaints(b))
}

// TestDotsOfAUserWhoLeft: the words for a user who left are in the past, after a minute with the time, in a language
// without a word for the first minute at once. In an outage they are those of an unknown status.
func TestDotsOfAUserWhoLeft(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "dave", 30*time.Second)
	s.leaves(t, "dave")
	b := s.open(t, s.dot("dave")+s.dot("dave", `lang="fr"`), quickly+`
		const { texts } = await import(url + "/lastseen.js")
		texts.fr = { seen: "vu {ago}" }
		window.said = []
		const dot = document.querySelector("presence-dot")
		new MutationObserver(() => said.push(dot.text)).observe(dot.shadowRoot, { subtree: true, childList: true })`)
	b.Do(t, until(`document.querySelector("presence-dot").text === "last seen just now"`),
		until(`/^vu il y a \d+ secondes?$/.test(document.querySelector("[lang=fr]").text)`),
		s.pass(time.Minute), untilSpoken("dave, last seen 1 minute ago", "dave, vu il y a 1 minute"))
	s.answerUnavailable()
	b.Do(t, until("(passed += 300_000, true)"), untilSpoken("dave, status unknown", "dave, status unknown"))
	all := testbrowser.Evaluate[[]string](t, b, "said")
	require.Subset(t, []string{"status unknown", "last seen just now", "last seen 1 minute ago"}, all)
	require.Contains(t, all, "last seen 1 minute ago")
}

// TestDotsGrowOld: the words of a dot follow the time, by the server's clock, although the page's is wrong by years.
func TestDotsGrowOld(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "bob", 90*time.Second)
	b := s.open(t, s.dot("bob"), "wrong = -3 * 365 * 86400_000")
	b.Do(t, untilSpoken("bob, last seen 1 minute ago"), s.pass(time.Minute), untilSpoken("bob, last seen 2 minutes ago"))
}

// drawing returns what a dot looks like: the shape and the colours of the line and of the area.
const drawing = `const drawing = dot => {
	const path = dot.shadowRoot.querySelector("path"), style = getComputedStyle(path)
	return {shape: path.getAttribute("d"), area: style.fill, line: style.stroke, dashes: style.strokeDasharray}
}
const paint = dot => drawing(dot).area == "none" ? drawing(dot).line : drawing(dot).area
const onPage = (dot, page) => [luminance(rgba(paint(dot)).slice(0, 3)), luminance(page)].sort((a, b) => a - b)
const contrasts = page => [...document.querySelectorAll("presence-dot")].map(dot => onPage(dot, page))
	.map(([dark, light]) => (light + 0.05) / (dark + 0.05))
`

// TestDotsLook: shapes differ as well as colours, and each has the contrast of WCAG AA on a white and on a dark page.
// Elements take their colours and their size from the page.
func TestDotsLook(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, s.dot("alice")+s.dot("bob")+s.dot("carol")+`<presence-dot user="x"></presence-dot>`, "")
	b.Do(t, untilSpoken("alice, online", "bob, last seen 3 minutes ago", "carol, last seen 2 hours ago",
		"x, status unknown"), testbrowser.Settled)
	const dots = `[...document.querySelectorAll("presence-dot")]`
	looks := testbrowser.Measure[[]map[string]string](t, b, "(() => {"+drawing+"return "+dots+".map(drawing)})()")
	shapes := map[string]bool{}
	for _, look := range looks {
		shapes[look["shape"]] = true
	}
	require.Len(t, shapes, 4)
	require.NotEqual(t, "none", looks[3]["dashes"])
	for _, ground := range []string{"[255, 255, 255]", "[17, 17, 17]"} {
		drawn := "(() => {" + drawing + "return contrasts(" + ground + ")})()"
		for i, contrast := range testbrowser.Measure[[]float64](t, b, drawn) {
			require.GreaterOrEqual(t, contrast, 3.0, "dot %d on %s", i, ground)
		}
	}
	b.Do(t, until(`(document.body.style.setProperty("--presence-green", "rgb(1, 2, 3)"),
		document.body.style.setProperty("--presence-size", "40px"), true)`), testbrowser.Settled)
	require.Equal(t, "rgb(1, 2, 3)", testbrowser.Measure[string](t, b, "(() => {"+drawing+"return paint("+dots+"[0])})()"))
	require.Equal(t, []float64{40, 40}, testbrowser.Evaluate[[]float64](t, b,
		"(box => [box.width, box.height])("+dots+`[0].shadowRoot.querySelector("svg").getBoundingClientRect())`))
	require.Equal(t, []bool{true, false}, testbrowser.Evaluate[[]bool](t, b,
		dots+`.slice(0, 2).map(dot => dot.matches(":state(green)"))`), "for the page's own styles")
}

// prefers has the browser emulate media features, "name: value".
func prefers(features ...string) step {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		params := emulation.SetEmulatedMediaParams{}
		for _, feature := range features {
			name, value, _ := strings.Cut(feature, ": ")
			params.Features = append(params.Features, &emulation.MediaFeature{Name: name, Value: value})
		}
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, params)
		return chromedp.Void{}, err
	}
}

// TestDotsRespectPreferences: colours change at once, so that a dot is never shown in another one first, and are those
// of the system for those who force them.
func TestDotsRespectPreferences(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, s.dot("alice")+s.dot("bob")+`<p>text</p>`, "")
	b.Do(t, untilSpoken("alice, online", "bob, last seen 3 minutes ago"))
	const dot = `getComputedStyle(document.querySelector("presence-dot"))`
	b.Do(t, until(dot+`.transitionDuration == "0s"`))
	const system = `getComputedStyle(document.querySelector("p")).color`
	paints := "(() => {" + drawing + `return [...document.querySelectorAll("presence-dot")].map(paint)})()`
	require.NotContains(t, testbrowser.Measure[[]string](t, b, paints), testbrowser.Evaluate[string](t, b, system))
	const forced = "forced-colors: active" //nolint:misspell // CSS
	b.Do(t, prefers(forced), until(`matchMedia("(`+forced+`)").matches`))
	paint := testbrowser.Evaluate[string](t, b, system)
	require.Equal(t, []string{paint, paint}, testbrowser.Measure[[]string](t, b, paints), "the shapes still differ")
}

// TestDotsChange: a dot follows its attributes and its place in the document, and says so by events. A dot that only
// moves stays as it is.
func TestDotsChange(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, s.dot("alice")+"<p></p>", `
		window.dot = document.querySelector("presence-dot")
		window.events = []
		document.addEventListener("presencechange", ({ target, detail }) => {
			events.push([detail.user, detail.status, target === dot, target.presence === detail].join(" "))
		})`)
	step := func(script string, spoken ...string) step {
		return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
			if _, err := chromedp.Evaluate[bool]("(()=>{"+script+";return true})()")(ctx, target); err != nil {
				return chromedp.Void{}, err
			}
			return untilSpoken(spoken...)(ctx, target)
		}
	}
	b.Do(t, untilSpoken("alice, online"),
		until(`events = []`), step(`document.querySelector("p").append(dot)`, "alice, online"),
		step(`dot.setAttribute("label", "Al"); dot.remove(); document.body.append(dot)`, "Al, online"))
	require.Empty(t, testbrowser.Evaluate[[]string](t, b, "events"))
	b.Do(t, step(`dot.removeAttribute("label"); dot.setAttribute("user", "carol")`, "carol, last seen 2 hours ago"),
		step(`dot.removeAttribute("namespace")`, "carol, status unknown"),
		step(`dot.setAttribute("namespace", "empty")`, "carol, offline"))
	b.Do(t, step(`dot.remove()`), step(`document.body.append(dot)`, "carol, offline"))
	events := testbrowser.Evaluate[[]string](t, b, "events")
	events = slices.Compact(events) // between two users a dot may know nothing
	require.Equal(t, "carol grey true true", events[len(events)-1])
	require.Contains(t, events, "carol unknown true true")
	require.NotContains(t, strings.Join(events, ","), "alice")
	s.pingedAgo(t, "alice", 0)
	b.Do(t, step(`dot.setAttribute("namespace", "chat"); dot.setAttribute("user", "alice")`, "alice, online"))
	require.Empty(t, s.complaints(b))
}

// TestDotsShareATimer: a thousand dots have one timer, however many come and go.
func TestDotsShareATimer(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := testbrowser.Open(t, s.pages)
	b.WithScript(t, `{
		const set = setInterval, clear = clearInterval, running = window.running = new Map()
		window.setInterval = (f, ms) => { const id = set(f, ms); running.set(id, ms); return id }
		window.clearInterval = id => { running.delete(id); clear(id) }
		window.timers = () => [...running.values()].filter(ms => ms == 5000).length
	}`)
	s.load(t, b, strings.Repeat(s.dot("alice"), 1000), "")
	const dots = `[...document.querySelectorAll("presence-dot")]`
	b.Do(t, until(dots+`.every(dot => dot.presence.status == "green")`))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "timers()"))
	b.Do(t, until(dots+`.forEach(dot => dot.remove()) ?? true`), until(dots+".length == 0"))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "timers()"))
}

// collectGarbage frees what the page does not use.
func collectGarbage(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	return chromedp.Void{}, err
}

// TestDotsAreFreed: elements that are removed are not kept, neither dots nor lists.
func TestDotsAreFreed(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := testbrowser.Open(t, s.pages)
	list := fmt.Sprintf(`<presence-list url=%q namespace="chat"></presence-list>`, s.server.URL)
	s.load(t, b, "<main>"+strings.Repeat(s.dot("alice")+s.dot("bob"), 50)+list+"</main>", `
		window.refs = [...document.querySelectorAll("main *")].map(element => new WeakRef(element))`)
	b.Do(t, until(`refs.slice(0, 100).every(ref => ref.deref().presence.status != "unknown") &&
		refs[100].deref().shadowRoot.querySelectorAll("li").length == 4`),
		until(`document.querySelector("main").remove() ?? true`),
		until("new Promise(done => setTimeout(done, 0, true))"))
	require.Eventually(t, func() bool {
		b.Do(t, collectGarbage)
		return testbrowser.Evaluate[int](t, b, "refs.filter(ref => ref.deref()).length") == 0
	}, time.Minute, 50*time.Millisecond)
}

// TestDotImageInBrowser: the image is an image, and opened as a page it shows its title and runs nothing.
func TestDotImageInBrowser(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	const image = "/v1/namespaces/chat/users/%3C%2Ftitle%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E/dot.svg?size=24"
	b.Do(t, chromedp.Navigate(s.URL+"/guides/errors"), until(fmt.Sprintf(
		`(window.image ??= Object.assign(new Image(), { src: %q })).complete`, image)))
	require.Equal(t, []int{24, 24}, testbrowser.Evaluate[[]int](t, b, "[image.naturalWidth, image.naturalHeight]"))
	b.Do(t, chromedp.Navigate(s.URL+image))
	require.Equal(t, "</title><script>alert(1)</script> is offline",
		testbrowser.Evaluate[string](t, b, `document.querySelector("title").textContent`))
	require.Zero(t, testbrowser.Evaluate[int](t, b, `document.querySelectorAll("script").length`))
	require.Empty(t, b.Seen())
}
