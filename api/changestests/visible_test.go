package changestests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// visibleToContacts configures that users are visible to contacts, with an API key and tokens whose clock is real. It
// returns the header of the key, and of a user's token.
func visibleToContacts(t *testing.T) (set func(*api.Config), key string, of func(user string) string) {
	t.Helper()
	guarded, one, _, token := apitest.TwoKeys(t)
	set = func(c *api.Config) {
		guarded(c)
		c.Limits = limit.Limits{}
		apitest.ToContacts(c)
	}
	return set, kit.Bearer(one), func(user string) string { return kit.Bearer(token(user)) }
}

// TestVisibleReload: a reload that changes who sees the users of a namespace ends what follows changes there. Others do
// not.
func TestVisibleReload(t *testing.T) {
	t.Parallel()
	for before, after := range map[api.Visibility]api.Visibility{
		api.VisibleToContacts: api.VisibleToEveryone, api.VisibleToEveryone: api.VisibleToContacts,
		"": api.VisibleToContacts,
	} {
		t.Run(string(before), func(t *testing.T) {
			t.Parallel()
			set, _, of := visibleToContacts(t)
			w := apitest.NewSocketServer(t, set, func(c *api.Config) { c.Settings.Visibility = before })
			stream := w.Follow(http.MethodGet, "/chat/changes?user=ann", "", of("vic"))
			cursor := stream.Changes().ID
			watches, _ := w.Hello(`{"watch":{"users":["ann"]}}`, of("vic"))
			later, _ := w.Hello(`{"user":"vic"}`, of("vic"))
			later.Asks(`{"watch":{"add":["ann"]}}`, "changes")
			open, _ := w.Hello(`{"user":"vic"}`, of("vic"))
			w.Reload(func(*api.Config) {})
			w.Reload(func(c *api.Config) { c.Namespaces = map[string]api.Settings{"other": {Visibility: after}} })
			watches.Asks(`{"watch":{"add":["bob"]}}`, "changes") // it is open
			w.Reload(func(c *api.Config) { c.Settings.Visibility = after })
			watches.Closed(problem.ShuttingDown.CloseCode(), string(problem.ShuttingDown))
			later.Closed(problem.ShuttingDown.CloseCode(), string(problem.ShuttingDown))
			for _, ok := stream.Next(); ok; _, ok = stream.Next() {
			}
			open.Asks(`{"activity":{"idle":false}}`, "ok")
			require.Equal(t, true, w.Send(http.MethodGet, "/chat/changes?user=ann&cursor="+cursor, "",
				of("vic")).JSON(t)["reset"], "a cursor of the time before")
			require.NotRegexp(t, "level=(ERROR|WARN)", w.Log.String())
		})
	}
}

// TestVisibleRequestsFail: while contacts cannot be read, polls and new streams and connections fail.
func TestVisibleRequestsFail(t *testing.T) {
	t.Parallel()
	s := &kit.ContactStore{Store: kit.FileStore(t)}
	set, key, of := visibleToContacts(t)
	w := apitest.NewSocketServerOn(t, s, set)
	w.Post("/chat/users/ann/ping", "", key)
	w.Send(http.MethodPut, "/chat/users/ann/contacts", `{"users":["vic"]}`, key).Is(t, http.StatusNoContent)
	s.Fails.Store(true)
	for _, query := range []string{"user=ann", "user=ann&wait=5s", ""} {
		for _, accept := range []string{"*/*", "text/event-stream"} {
			w.Fails(problem.StoreUnavailable, http.MethodGet, "/chat/changes?"+query, "", of("vic"), "Accept: "+accept)
		}
	}
	for _, watch := range []string{`{"users":["ann"]}`, `{"everyone":true}`} {
		c := w.DialSocket("chat", of("vic"))
		c.Send(`{"hello":{"watch":` + watch + `}}`)
		c.Fails(problem.StoreUnavailable)
	}
	c, _ := w.Hello(`{}`, of("vic"))
	c.Refuses(problem.StoreUnavailable, `{"watch":{"add":["ann"]}}`)
	s.Fails.Store(false)
	require.Equal(t, []string{"ann green"}, kit.Statuses(c.Asks(`{"watch":{"add":["ann"]}}`, "changes")))
}

// TestParts: a client that is cut off in the middle of a batch, and comes back when things are again as they were
// before it, is sent all: the cursor of a part leads to a reset. So it is for viewers and for services.
func TestParts(t *testing.T) {
	t.Parallel()
	set, key, of := visibleToContacts(t)
	w := apitest.NewSocketServer(t, set)
	users := []string{"ann"}
	for k := range 999 {
		users = append(users, fmt.Sprintf("%040d", k))
	}
	list := `"` + strings.Join(users, `","`) + `"`
	w.Send(http.MethodPut, "/chat/users/ann/contacts", `{"users":["vic"]}`, key).Is(t, http.StatusNoContent)
	record := func(what string) { w.Post("/chat/users/ann/"+what, "", key) }
	for _, credential := range []string{key, of("vic")} {
		record("ping")
		follow := func(cursor, event string) (part string, statuses []string) {
			r := w.Follow(http.MethodPost, "/chat/changes", `{"users":[`+list+`]}`, credential, "Last-Event-ID: "+cursor)
			one := r.Changes()
			require.Equal(t, event, one.Name)
			r.Closed()
			return one.ID, kit.Statuses(one.Data)
		}
		part, statuses := follow("", "changes")
		require.Equal(t, []string{"ann green"}, statuses[:1])
		record("leave")
		part, statuses = follow(part, "reset")
		require.Equal(t, []string{"ann grey"}, statuses[:1])
		record("ping")
		_, statuses = follow(part, "reset")
		require.Equal(t, []string{"ann green"}, statuses[:1])

		watch := func(cursor, name string) (part string) {
			c, _ := w.Hello(`{}`, credential)
			first := c.Asks(`{"watch":{"add":[`+list+`],"cursor":"`+cursor+`"}}`, name)
			require.Equal(t, true, first["more"])
			require.Equal(t, []string{"ann green"}, kit.Statuses(first)[:1])
			return kit.CursorOf(first)
		}
		watch(watch(part, "reset"), "reset")
	}
}

// TestVisibleContinues: after a cursor, a viewer is sent what changed, with a cursor whose length is always the same.
func TestVisibleContinues(t *testing.T) {
	t.Parallel()
	set, key, of := visibleToContacts(t)
	w := apitest.NewSocketServer(t, set)
	w.Send(http.MethodPut, "/chat/users/ann/contacts", `{"users":["vic"]}`, key).Is(t, http.StatusNoContent)
	w.Post("/chat/users/ann/ping", "", key)
	w.Post("/chat/users/sam/ping", "", key)
	poll := func(cursor string) map[string]any { return w.Get("/chat/changes?user=ann&user=sam"+cursor, of("vic")) }
	first := poll("")
	require.Equal(t, []string{"ann green", "sam grey"}, kit.Statuses(first))
	w.Post("/chat/users/sam/leave", "", key)
	same := poll("&cursor=" + kit.CursorOf(first))
	require.Empty(t, kit.Statuses(same))
	require.Len(t, kit.CursorOf(same), len(kit.CursorOf(first)))
	w.Post("/chat/users/ann/leave", "", key)
	left := poll("&wait=50s&cursor=" + kit.CursorOf(same))
	require.Equal(t, []string{"ann grey"}, kit.Statuses(left))
	require.Equal(t, false, left["reset"])
	other := w.Get("/chat/changes?user=ann&user=bob&cursor="+kit.CursorOf(same), of("vic"))
	require.Equal(t, true, other["reset"], "of another list")
	others := w.Get("/chat/changes?user=ann&user=sam&cursor="+kit.CursorOf(same), of("ann"))
	require.Equal(t, true, others["reset"], "of another viewer")
	require.Equal(t, true, w.Get("/chat/changes?user=ann&user=sam&cursor="+kit.CursorOf(same), key)["reset"])
}

// TestChangesOfContacts: what contacts add and remove reaches streams and long polls on all servers, in a namespace
// where everyone sees everyone.
func TestChangesOfContacts(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		const contacts = "/chat/users/ann/contacts"
		one.Post("/chat/users/bob/ping", "")
		one.Write("PUT", contacts, `{"users":["bob","cat"]}`)
		stream := two.Follow("GET", "/chat/changes?contacts_of=ann", "")
		first := stream.Changes()
		require.Equal(t, []string{"bob green", "cat grey"}, kit.Statuses(first.Data))
		one.Write("PATCH", contacts, `{"add":["dan"]}`)
		require.Equal(t, []string{"dan grey"}, kit.Statuses(stream.Changes().Data))
		two.Post("/chat/users/dan/ping", "")
		require.Equal(t, []string{"dan green"}, kit.Statuses(stream.Changes().Data))
		one.Write("PATCH", contacts, `{"remove":["bob"]}`)
		last := stream.Changes()
		require.Equal(t, []string{"bob grey"}, kit.Statuses(last.Data))
		require.Nil(t, kit.FirstOf(last.Data, "users")["last_seen"])

		poll := one.Get("/chat/changes?contacts_of=ann&wait=10ms&cursor=" + last.ID)
		require.Equal(t, false, poll["reset"])
		require.Empty(t, kit.Statuses(poll))
		reset := one.Get("/chat/changes?contacts_of=ann&cursor=" + first.ID)
		require.Equal(t, true, reset["reset"])
		require.Equal(t, []string{"cat grey", "dan green"}, kit.Statuses(reset))
		posted := two.Post("/chat/changes", `{"contacts_of":"ann"}`)
		require.Equal(t, []string{"cat grey", "dan green"}, kit.Statuses(posted))
		one.Write("DELETE", "/chat/users/ann", "")
		require.Equal(t, []string{"dan grey"}, kit.Statuses(stream.Changes().Data))
		require.Empty(t, kit.Statuses(two.Get("/chat/changes?contacts_of=ann")))
		require.Empty(t, kit.Statuses(two.Get("/chat/changes?contacts_of=nobody")))
	})
}

// TestChangesOfContactsRefused: only those who can list contacts can follow them.
func TestChangesOfContactsRefused(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewGuardedServer(t)
	for caller, want := range map[string]int{
		"alice": 200, "all": 200, "bob": 403, "read": 403, "ping": 403, "nobody": 401,
	} {
		w.Send("GET", "/chat/changes?contacts_of=alice", "", kit.HeadersOf(headers[caller])...).Is(t, want, caller)
	}
	w.Fails(problem.Unauthenticated, "GET", "/public-1/changes?contacts_of=alice", "")
}
