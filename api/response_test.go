package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const alicePing, aliceUser, aliceLookup = "/chat/users/alice/ping", "/chat/users/alice", "/chat/lookup?user=alice&user=zoe"

// TestFreshness checks how long a response may be cached: 5 seconds at most, and never past the instant at which a
// status in it changes.
func TestFreshness(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	for _, step := range []struct {
		age  time.Duration
		want string
		why  string
	}{
		{0, "max-age=5", "green for long"},
		{55 * time.Second, "max-age=5", "green for exactly 5 s"},
		{55*time.Second + time.Millisecond, "max-age=4", "4.999 s, rounded down"},
		{59*time.Second + time.Millisecond, "max-age=0", "0.999 s, rounded down"},
		{time.Minute, "max-age=5", "yellow for long"},
		{298 * time.Second, "max-age=2", "yellow for 2 s"},
		{5 * time.Minute, "max-age=5", "grey does not decay"},
	} {
		w.store.set(testNow.Add(step.age))
		for _, path := range []string{aliceUser, aliceLookup, aliceDot} {
			got := w.send("GET", path, "")
			require.Equal(t, step.want, got.header.Get("Cache-Control"), "%s: %s", step.why, path)
			require.Regexp(t, `^W/"[A-Za-z0-9_-]{16}"$`, got.header.Get("ETag"))
		}
	}
	w.store.set(testNow.Add(time.Hour))
	past := w.send("GET", aliceUser+"?as_of=2026-11-20T12:00:57Z", "")
	require.Equal(t, "max-age=3", past.header.Get("Cache-Control"), "an explicit as_of is the time that counts")
	w.store.set(testNow.Add(58 * time.Second))
	w.post("/chat/users/zoe/ping", "")
	lookup := w.send("GET", aliceLookup, "")
	require.Equal(t, "max-age=2", lookup.header.Get("Cache-Control"), "the first of several to decay decides")
}

// TestFreshnessOfDetails checks that a response may not be cached past the end of what a user says, by the server's
// clock, and that it is sent again as soon as something of it differs.
func TestFreshnessOfDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{Store: fileStore(t)}
	w := newTestServer(t, s)
	w.post(alicePing, "")
	until := testNow.Add(10 * time.Second)
	for _, path := range []string{aliceUser + "?", aliceLookup + "&", aliceDot + "?"} {
		tags := map[string]bool{}
		fetch := func(age time.Duration, query string, d store.Details, want string) {
			t.Helper()
			w.store.set(testNow.Add(age))
			s.details = map[string]store.Details{"alice": d}
			got := w.send("GET", path+query, "").is(t, http.StatusOK)
			require.Equal(t, want, got.header.Get("Cache-Control"), "%s %s", path, age)
			tag := got.header.Get("ETag")
			tags[tag] = true
			w.send("GET", path+query, "", "If-None-Match: "+tag).is(t, http.StatusNotModified)
		}
		busy := store.Details{Said: lastseen.Said{Availability: lastseen.Busy, Until: until}}
		fetch(0, "", store.Details{}, "max-age=5")
		fetch(0, "", busy, "max-age=5")
		fetch(5*time.Second, "", busy, "max-age=5")
		fetch(5001*time.Millisecond, "", busy, "max-age=4")
		fetch(9*time.Second, "", busy, "max-age=1")
		fetch(9001*time.Millisecond, "as_of=2026-11-20T12:00:00Z", busy, "max-age=0")
		require.Len(t, tags, 2, "nothing, and busy")
		fetch(10*time.Second, "", busy, "max-age=5")
		require.Len(t, tags, 2, "nothing again")
		busy.Said.Until = 0
		fetch(0, "", busy, "max-age=5")
		fetch(0, "", store.Details{Said: lastseen.Said{Availability: lastseen.Away}}, "max-age=5")
		fetch(0, "", store.Details{Said: lastseen.Said{Note: "lunch"}}, "max-age=5")
		fetch(0, "", store.Details{IdleSince: testNow}, "max-age=5")
		inCall := store.Details{InCallUntil: until}
		fetch(0, "", inCall, "max-age=5")
		fetch(9*time.Second, "", inCall, "max-age=1")
		inCall.InCallUntil += 1000 // it was renewed
		fetch(9*time.Second, "", inCall, "max-age=2")
		if path == aliceDot+"?" {
			require.Len(t, tags, 6, "it does not show the end")
		} else {
			require.Len(t, tags, 7)
		}
	}
}

// TestNotModified checks that a response is not sent again while the presence in it is the same, and is sent again
// as soon as it changes.
func TestNotModified(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		for _, path := range []string{aliceUser, aliceLookup} {
			w.store.set(testNow)
			require.NoError(t, w.store.DeleteNamespace(t.Context(), "chat"))
			tag := ""
			changed := func(why string) {
				t.Helper()
				got := w.send("GET", path, "", "If-None-Match: "+tag).is(t, http.StatusOK, why)
				require.NotEqual(t, tag, got.header.Get("ETag"), why)
				tag = got.header.Get("ETag")
				for _, method := range []string{"GET", "HEAD"} {
					same := w.send(method, path, "", "If-None-Match: "+tag).is(t, http.StatusNotModified, why)
					require.Empty(t, same.body)
					for _, name := range []string{"ETag", "Cache-Control"} {
						require.Equal(t, got.header.Get(name), same.header.Get(name), name)
					}
				}
			}
			changed("never seen")
			w.post(alicePing, "")
			changed("first ping")
			w.store.set(testNow.Add(10 * time.Second))
			w.send("GET", path, "", "If-None-Match: "+tag).is(t, http.StatusNotModified, "only as_of is another")
			w.store.set(testNow.Add(time.Minute))
			changed("yellow by itself")
			w.post(alicePing, "")
			changed("pinged again")
			w.post("/chat/users/alice/leave", "")
			changed("left")
			w.store.set(testNow.Add(time.Hour))
			w.post(alicePing, "")
			w.store.set(testNow.Add(2 * time.Hour))
			changed("grey after another ping")
			require.NoError(t, w.store.Forget(t.Context(), "chat", "alice"))
			changed("forgotten")
		}
	})
}

// TestIfNoneMatch checks how the header is parsed: a list, weak or strong, or a star.
func TestIfNoneMatch(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	tag := w.send("GET", aliceUser, "").header.Get("ETag")
	for header, want := range map[string]int{
		tag:                        http.StatusNotModified,
		tag[len("W/"):]:            http.StatusNotModified,
		`"x", ` + tag + ` , W/"y"`: http.StatusNotModified,
		"*":                        http.StatusNotModified,
		`"x"`:                      http.StatusOK,
		tag[len(`W/"`):]:           http.StatusOK,
		"":                         http.StatusOK,
	} {
		w.send("GET", aliceUser, "", "If-None-Match: "+header).is(t, want, header)
	}
	w.send("GET", aliceUser, "", `If-None-Match: "x"`, "If-None-Match: "+tag).is(t, http.StatusNotModified, "the header twice")
	w.send("GET", "/chat/users/bob", "", "If-None-Match: "+tag).is(t, http.StatusOK, "another user")
}

// TestPrivateCaching checks that responses to authenticated callers are private, and that shared caches may keep
// anonymous ones.
func TestPrivateCaching(t *testing.T) {
	w, headers := newGuardedServer(t)
	open := newTestServer(t, fileStore(t))
	for _, path := range []string{"/users/alice", "/lookup?user=alice", "/users/alice/dot.svg"} {
		for _, condition := range []string{"X: y", "If-None-Match: *"} {
			for _, method := range []string{"GET", "HEAD"} {
				for want, r := range map[[2]string]testResponse{
					{"private, max-age=5", "Authorization"}: w.send(method, "/chat"+path, "", bearerOf(headers["read"]),
						condition),
					{"max-age=5", "Authorization"}: w.send(method, "/public-1"+path, "", condition),
					{"max-age=5", ""}:              open.send(method, "/chat"+path, "", "Authorization: nonsense", condition),
				} {
					require.Equal(t, want, [2]string{r.header.Get("Cache-Control"), r.header.Get("Vary")}, path)
				}
			}
		}
	}
}

// TestThresholdsChangeTheETag checks that the ETag depends on the thresholds, because a client that gets 304 keeps
// the thresholds in its copy. This includes grey users, which have no valid_until.
func TestThresholdsChangeTheETag(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, path := range []string{"/chat/users/zoe", "/chat/lookup?user=zoe"} {
		tag := w.send("GET", path, "").header.Get("ETag")
		for _, change := range []func(*Config){
			func(c *Config) { c.Settings.Thresholds.Green += time.Second },
			func(c *Config) { c.Settings.Thresholds.Yellow += time.Second },
		} {
			w.reload(change)
			tag = w.send("GET", path, "", "If-None-Match: "+tag).is(t, http.StatusOK, path).header.Get("ETag")
			w.send("GET", path, "", "If-None-Match: "+tag).is(t, http.StatusNotModified, path)
		}
	}
}
