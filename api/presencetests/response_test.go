package presencetests

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
)

// TestFreshness checks how long a response may be cached: 5 seconds at most, and never past the instant at which a
// status in it changes.
func TestFreshness(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post(kit.AlicePing, "")
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
		{5 * time.Minute, "max-age=5", "grey does not change with time"},
	} {
		w.Store.Set(kit.Now.Add(step.age))
		for _, path := range []string{kit.AliceUser, kit.AliceLookup, aliceDot} {
			got := w.Send("GET", path, "")
			require.Equal(t, step.want, got.Header.Get("Cache-Control"), "%s: %s", step.why, path)
			require.Regexp(t, `^W/"[A-Za-z0-9_-]{16}"$`, got.Header.Get("ETag"))
		}
	}
	w.Store.Set(kit.Now.Add(time.Hour))
	past := w.Send("GET", kit.AliceUser+"?as_of=2026-11-20T12:00:57Z", "")
	require.Equal(t, "max-age=3", past.Header.Get("Cache-Control"), "an explicit as_of is the time that counts")
	w.Store.Set(kit.Now.Add(58 * time.Second))
	w.Post("/chat/users/zoe/ping", "")
	lookup := w.Send("GET", kit.AliceLookup, "")
	require.Equal(t, "max-age=2", lookup.Header.Get("Cache-Control"), "the first of several to change decides")
}

// TestFreshnessOfDetails checks that a response may not be cached past the end of a user's availability, by the
// server's clock, and that it is sent again as soon as something of it differs.
func TestFreshnessOfDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{Store: kit.FileStore(t)}
	w := apitest.NewServer(t, s)
	w.Post(kit.AlicePing, "")
	until := kit.Now.Add(10 * time.Second)
	for _, path := range []string{kit.AliceUser + "?", kit.AliceLookup + "&", aliceDot + "?"} {
		tags := map[string]bool{}
		fetch := func(age time.Duration, query string, d store.Details, want string) {
			t.Helper()
			w.Store.Set(kit.Now.Add(age))
			s.details = map[string]store.Details{"alice": d}
			got := w.Send("GET", path+query, "").Is(t, http.StatusOK)
			require.Equal(t, want, got.Header.Get("Cache-Control"), "%s %s", path, age)
			tag := got.Header.Get("ETag")
			tags[tag] = true
			w.Send("GET", path+query, "", "If-None-Match: "+tag).Is(t, http.StatusNotModified)
		}
		busy := store.Details{Availability: lastseen.AvailabilityState{Availability: lastseen.Busy, Until: until}}
		fetch(0, "", store.Details{}, "max-age=5")
		fetch(0, "", busy, "max-age=5")
		fetch(5*time.Second, "", busy, "max-age=5")
		fetch(5001*time.Millisecond, "", busy, "max-age=4")
		fetch(9*time.Second, "", busy, "max-age=1")
		fetch(9001*time.Millisecond, "as_of=2026-11-20T12:00:00Z", busy, "max-age=0")
		require.Len(t, tags, 2, "nothing, and busy")
		fetch(10*time.Second, "", busy, "max-age=5")
		require.Len(t, tags, 2, "nothing again")
		busy.Availability.Until = 0
		fetch(0, "", busy, "max-age=5")
		fetch(0, "", store.Details{Availability: lastseen.AvailabilityState{Availability: lastseen.Away}}, "max-age=5")
		fetch(0, "", store.Details{Availability: lastseen.AvailabilityState{Note: "lunch"}}, "max-age=5")
		fetch(0, "", store.Details{IdleSince: kit.Now}, "max-age=5")
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
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for _, path := range []string{kit.AliceUser, kit.AliceLookup} {
			w.Store.Set(kit.Now)
			require.NoError(t, w.Store.DeleteNamespace(t.Context(), "chat"))
			tag := ""
			changed := func(why string) {
				t.Helper()
				got := w.Send("GET", path, "", "If-None-Match: "+tag).Is(t, http.StatusOK, why)
				require.NotEqual(t, tag, got.Header.Get("ETag"), why)
				tag = got.Header.Get("ETag")
				for _, method := range []string{"GET", "HEAD"} {
					same := w.Send(method, path, "", "If-None-Match: "+tag).Is(t, http.StatusNotModified, why)
					require.Empty(t, same.Body)
					for _, name := range []string{"ETag", "Cache-Control"} {
						require.Equal(t, got.Header.Get(name), same.Header.Get(name), name)
					}
				}
			}
			changed("never seen")
			w.Post(kit.AlicePing, "")
			changed("first ping")
			w.Store.Set(kit.Now.Add(10 * time.Second))
			w.Send("GET", path, "", "If-None-Match: "+tag).Is(t, http.StatusNotModified, "only as_of is another")
			w.Store.Set(kit.Now.Add(time.Minute))
			changed("yellow by itself")
			w.Post(kit.AlicePing, "")
			changed("pinged again")
			w.Post("/chat/users/alice/leave", "")
			changed("left")
			w.Store.Set(kit.Now.Add(time.Hour))
			w.Post(kit.AlicePing, "")
			w.Store.Set(kit.Now.Add(2 * time.Hour))
			changed("grey after another ping")
			require.NoError(t, w.Store.Forget(t.Context(), "chat", "alice"))
			changed("forgotten")
		}
	})
}

// TestIfNoneMatch checks how the header is parsed: a list, weak or strong, or a star.
func TestIfNoneMatch(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post(kit.AlicePing, "")
	tag := w.Send("GET", kit.AliceUser, "").Header.Get("ETag")
	for header, want := range map[string]int{
		tag:                        http.StatusNotModified,
		tag[len("W/"):]:            http.StatusNotModified,
		`"x", ` + tag + ` , W/"y"`: http.StatusNotModified,
		"*":                        http.StatusNotModified,
		`"x"`:                      http.StatusOK,
		tag[len(`W/"`):]:           http.StatusOK,
		"":                         http.StatusOK,
	} {
		w.Send("GET", kit.AliceUser, "", "If-None-Match: "+header).Is(t, want, header)
	}
	w.Send("GET", kit.AliceUser, "", `If-None-Match: "x"`, "If-None-Match: "+tag).Is(t, http.StatusNotModified, "the header twice")
	w.Send("GET", "/chat/users/bob", "", "If-None-Match: "+tag).Is(t, http.StatusOK, "another user")
}

// TestPrivateCaching checks that responses to authenticated callers are private, and that shared caches may keep
// anonymous ones.
func TestPrivateCaching(t *testing.T) {
	w, headers := apitest.NewGuardedServer(t)
	open := apitest.NewServer(t, kit.FileStore(t))
	for _, path := range []string{"/users/alice", "/lookup?user=alice", "/users/alice/dot.svg"} {
		for _, condition := range []string{"X: y", "If-None-Match: *"} {
			for _, method := range []string{"GET", "HEAD"} {
				for want, r := range map[[2]string]kit.Response{
					{"private, max-age=5", "Authorization"}: w.Send(method, "/chat"+path, "",
						kit.BearerOf(headers["read"]), condition),
					{"max-age=5", "Authorization"}: w.Send(method, "/public-1"+path, "", condition),
					{"max-age=5", ""}:              open.Send(method, "/chat"+path, "", "Authorization: nonsense", condition),
				} {
					require.Equal(t, want, [2]string{r.Header.Get("Cache-Control"), r.Header.Get("Vary")}, path)
				}
			}
		}
	}
}

// TestThresholdsChangeTheETag checks that the ETag depends on the thresholds, because a client that gets 304 keeps
// the thresholds in its copy. This includes grey users, which have no valid_until.
func TestThresholdsChangeTheETag(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, path := range []string{"/chat/users/zoe", "/chat/lookup?user=zoe"} {
		tag := w.Send("GET", path, "").Header.Get("ETag")
		for _, change := range []func(*api.Config){
			func(c *api.Config) { c.Settings.Thresholds.Green += time.Second },
			func(c *api.Config) { c.Settings.Thresholds.Yellow += time.Second },
		} {
			w.Reload(change)
			tag = w.Send("GET", path, "", "If-None-Match: "+tag).Is(t, http.StatusOK, path).Header.Get("ETag")
			w.Send("GET", path, "", "If-None-Match: "+tag).Is(t, http.StatusNotModified, path)
		}
	}
}

// sayingStore is a store in which users have the details that a test sets, whatever its clock is.
type sayingStore struct {
	store.Store
	details map[string]store.Details
}

func (s *sayingStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	states, _, err := s.Store.Describe(ctx, namespace, users)
	return states, s.details, err
}

func (s *sayingStore) ReadDetails(context.Context, string, []store.Record) (map[string]store.Details, error) {
	return s.details, nil
}
