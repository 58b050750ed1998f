package changestests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// These tests run over all transports: whatever a client is connected by, it is sent the same.

// batch is what a client is sent at a time.
type batch struct {
	statuses []string
	reset    bool
	more     bool
	cursor   string
}

// batchOf returns a batch in a response, an event or a frame.
func batchOf(name string, content map[string]any) batch {
	return batch{
		statuses: kit.Statuses(content), reset: name == "reset" || content["reset"] == true,
		more: content["more"] == true, cursor: kit.CursorOf(content),
	}
}

// following is a client that follows some users, or for none everyone, from a cursor on, or "" from the beginning.
type following struct {
	users  []string
	cursor string
	caller []string // headers
}

// path is that of a request.
func (f following) path(more string) string {
	query := ""
	for _, user := range f.users {
		query += "&user=" + user
	}
	if f.cursor != "" {
		query += "&cursor=" + f.cursor
	}
	return "/chat/changes?" + strings.TrimPrefix(query+more, "&")
}

// hello is the content of the frame.
func (f following) hello() string {
	watch, cursor := `"everyone":true,"snapshot":true`, ""
	if f.users != nil {
		watch = `"users":["` + strings.Join(f.users, `","`) + `"]`
	}
	if f.cursor != "" {
		cursor = fmt.Sprintf(`,"cursor":%q`, f.cursor)
	}
	return `{"watch":{` + watch + `}` + cursor + `}`
}

// transport is a way to follow changes.
type transport struct {
	name string
	// follow returns a function that waits for the next batch, and one that ends the connection.
	follow func(w *apitest.Server, f following) (next func() batch, end func())
	// refused requires that a client is refused, because of the rate limit.
	refused func(w *apitest.Server, f following)
}

func transports() []transport {
	polling := func(wait string) func(*apitest.Server, following) (func() batch, func()) {
		return func(w *apitest.Server, f following) (next func() batch, end func()) {
			return func() batch {
				r := w.Get(f.path(wait), f.caller...)
				f.cursor = kit.CursorOf(r)
				return batchOf("", r)
			}, func() {}
		}
	}
	refused := func(headers ...string) func(*apitest.Server, following) {
		return func(w *apitest.Server, f following) {
			w.Fails(problem.RateLimited, "GET", f.path(""), "", slices.Concat(headers, f.caller)...)
		}
	}
	return []transport{
		{"poll", polling(""), refused()},
		{"long poll", polling("&wait=10s"), refused()},
		{"events", func(w *apitest.Server, f following) (next func() batch, end func()) {
			r := w.Follow("GET", f.path(""), "", f.caller...)
			return func() batch {
				e := r.Changes()
				require.Equal(w.T, e.ID, kit.CursorOf(e.Data))
				return batchOf(e.Name, e.Data)
			}, r.Closed
		}, refused(kit.AcceptEvents)},
		{"WebSocket", func(w *apitest.Server, f following) (next func() batch, end func()) {
			s, content := w.Hello(f.hello(), f.caller...)
			name := "welcome"
			return func() batch {
				for content == nil {
					if name, content, _ = s.Next(); name == "tick" {
						content = nil
					}
				}
				b := batchOf(name, content)
				content = nil
				return b
			}, func() { require.NoError(w.T, s.Conn.Close()) }
		}, func(w *apitest.Server, f following) { w.Greet(f.hello(), f.caller...).Fails(problem.RateLimited) }},
	}
}

// sent waits for a batch with users.
func sent(next func() batch) (b batch) {
	for len(b.statuses) == 0 {
		b = next()
	}
	return b
}

// TestTransports: a client is sent users, then what changes; with a cursor, by any transport, what changed since, and
// with one that the feed does not know, all of it.
func TestTransports(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	for i, one := range transports() {
		for k, two := range transports() {
			t.Run(one.name+", then "+two.name, func(t *testing.T) {
				a, b := fmt.Sprintf("a-%d-%d", i, k), fmt.Sprintf("b-%d-%d", i, k)
				users := []string{a, b}
				record := func(user, what string) { w.Post("/chat/users/"+user+"/"+what, "") }
				record(a, "ping")
				next, end := one.follow(w, following{users: users})
				got := sent(next)
				require.Equal(t, []string{a + " green", b + " grey"}, got.statuses)
				require.False(t, got.reset)
				record(b, "ping")
				got = sent(next)
				require.Equal(t, []string{b + " green"}, got.statuses)
				end()

				record(b, "leave")
				next, end = two.follow(w, following{users: users, cursor: got.cursor})
				got = sent(next)
				require.Equal(t, []string{b + " grey"}, got.statuses)
				require.False(t, got.reset)
				record(a, "leave")
				require.Equal(t, []string{a + " grey"}, sent(next).statuses)
				end()

				next, end = two.follow(w, following{users: users, cursor: kit.PositionsCursor("unknown")})
				got = sent(next)
				require.Equal(t, []string{a + " grey", b + " grey"}, got.statuses)
				require.True(t, got.reset)
				require.False(t, got.more)
				end()
			})
		}
	}
}

// TestTransportsOfEveryone: a client is sent all users, in pages, and then what changes.
func TestTransportsOfEveryone(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport.name, func(t *testing.T) {
			w := apitest.NewSocketServer(t)
			var pings, want []string
			for i := range 700 { // more than fit in an event or a frame
				pings = append(pings, fmt.Sprintf(`{"user":"user-%03d"}`, i))
				want = append(want, fmt.Sprintf("user-%03d green", i))
			}
			w.Post("/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
			next, end := transport.follow(w, following{})
			defer end()
			var got []string
			for more := true; more; {
				b := next()
				got, more = append(got, b.statuses...), b.more
			}
			slices.Sort(got)
			require.Equal(t, want, got)
			w.Post("/chat/users/zoe/ping", "")
			require.Equal(t, []string{"zoe green"}, sent(next).statuses)
		})
	}
}

// TestTransportsAreCharged: users who are sent at the beginning count as requests. A client that continues does not pay
// for them again, unless its cursor proves nothing.
func TestTransportsAreCharged(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t, apitest.BehindProxy, func(c *api.Config) { c.Limits = limit.Limits{Caller: 4} })
	users := strings.Split("abcdefghijkl", "")
	from := func(format string, i int) []string { return []string{kit.ForwardedFor(fmt.Sprintf(format, i))} }
	for i, transport := range transports() {
		t.Run(transport.name, func(*testing.T) {
			f := following{users: users, caller: from("203.0.113.%d", i)}
			next, end := transport.follow(w, f)
			opened := sent(next)
			end()
			transport.refused(w, f)
			f.cursor = kit.PositionsCursor("unknown")
			transport.refused(w, f)
			f.cursor, f.caller = opened.cursor, from("198.51.100.%d", i)
			for range 3 {
				_, end := transport.follow(w, f)
				end()
			}
		})
	}
}
