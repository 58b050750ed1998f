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

// TestVisibleParts: a client that is cut off in the middle of a batch, and comes back when things are again as they
// were before it, is told so: the cursor of a part leads to a reset.
func TestVisibleParts(t *testing.T) {
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
	follow := func(cursor string) (one, two kit.Event) {
		r := w.Follow(http.MethodPost, "/chat/changes", `{"users":[`+list+`]}`, of("vic"), "Last-Event-ID: "+cursor)
		one, two = r.Changes(), r.Changes()
		r.Closed()
		return one, two
	}
	record("ping")
	one, two := follow("")
	require.Equal(t, []string{"ann green"}, kit.Statuses(one.Data)[:1])
	require.Equal(t, one.ID, kit.CursorOf(one.Data))
	before := two.ID

	record("leave")
	one, _ = follow(before)
	require.Equal(t, "reset", one.Name)
	require.Equal(t, []string{"ann grey"}, kit.Statuses(one.Data)[:1])
	record("ping")
	one, two = follow(one.ID)
	require.Equal(t, "reset", one.Name)
	require.Equal(t, []string{"ann green"}, kit.Statuses(one.Data)[:1])
	require.Equal(t, before, two.ID, "as it was")

	watch := func(cursor, name string) (parts []map[string]any) {
		c, _ := w.Hello(`{}`, of("vic"))
		parts = append(parts, c.Asks(`{"watch":{"add":[`+list+`],"cursor":"`+cursor+`"}}`, name))
		for parts[len(parts)-1]["more"] == true {
			parts = append(parts, c.Want("changes"))
		}
		return parts
	}
	require.Empty(t, kit.Statuses(watch(before, "changes")[0]))
	record("leave")
	parts := watch(before, "reset")
	require.Greater(t, len(parts), 1)
	require.Equal(t, []string{"ann grey"}, kit.Statuses(parts[0])[:1])
	record("ping")
	parts = watch(kit.CursorOf(parts[0]), "reset")
	require.Equal(t, []string{"ann green"}, kit.Statuses(parts[0])[:1])
	require.Equal(t, before, kit.CursorOf(parts[len(parts)-1]))

	c, _ := w.Hello(`{}`, key)
	first := c.Asks(`{"watch":{"add":[`+list+`]}}`, "changes")
	require.Equal(t, true, first["more"])
	require.NotContains(t, first, "cursor", "those of a key are places in the feed")
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
