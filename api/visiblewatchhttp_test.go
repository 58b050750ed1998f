package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// visibleToContacts configures that users are visible to contacts, with an API key and tokens whose clock is real. It
// returns the header of the key, and of a user's token.
func visibleToContacts(t *testing.T) (set func(*Config), key string, of func(user string) string) {
	t.Helper()
	guarded, one, _, token := twoKeys(t)
	set = func(c *Config) {
		guarded(c)
		c.Limits = limit.Limits{}
		toContacts(c)
	}
	return set, bearer(one), func(user string) string { return bearer(token(user)) }
}

// know sets the contacts of a user, and has the watchers on all servers learn it.
func (w *testServer) know(owner string, contacts ...string) {
	w.t.Helper()
	require.NoError(w.t, w.config.Store.SetContacts(w.t.Context(), "chat", owner, contacts))
	w.config.Shared.newest.Load().signalContacts(w.t.Context(), "chat", owner)
}

// TestVisibleReload: a reload that changes who sees the users of a namespace ends what follows changes there. Others do
// not.
func TestVisibleReload(t *testing.T) {
	t.Parallel()
	for before, after := range map[Visibility]Visibility{
		VisibleToContacts: VisibleToEveryone, VisibleToEveryone: VisibleToContacts, "": VisibleToContacts,
	} {
		t.Run(string(before), func(t *testing.T) {
			t.Parallel()
			set, _, of := visibleToContacts(t)
			w := newSocketServer(t, set, func(c *Config) { c.Settings.Visibility = before })
			stream := w.follow(http.MethodGet, "/chat/changes?user=ann", "", of("vic"))
			cursor := stream.changes().id
			watches, _ := w.hello(`{"watch":{"users":["ann"]}}`, of("vic"))
			later, _ := w.hello(`{"user":"vic"}`, of("vic"))
			later.asks(`{"watch":{"add":["ann"]}}`, frameChanges)
			open, _ := w.hello(`{"user":"vic"}`, of("vic"))
			w.reload(func(*Config) {})
			w.reload(func(c *Config) { c.Namespaces = map[string]Settings{"other": {Visibility: after}} })
			watches.asks(`{"watch":{"add":["bob"]}}`, frameChanges) // it is open
			w.reload(func(c *Config) { c.Settings.Visibility = after })
			watches.closed(problem.ShuttingDown.CloseCode(), string(problem.ShuttingDown))
			later.closed(problem.ShuttingDown.CloseCode(), string(problem.ShuttingDown))
			for _, ok := stream.next(); ok; _, ok = stream.next() {
			}
			open.asks(`{"activity":{"idle":false}}`, frameOK)
			require.Equal(t, true, w.send(http.MethodGet, "/chat/changes?user=ann&cursor="+cursor, "",
				of("vic")).json(t)["reset"], "a cursor of the time before")
			require.NotRegexp(t, "level=(ERROR|WARN)", w.log.String())
		})
	}
}

// reloaded provokes the responses to requests that wait while a reload changes who sees the users of their namespace.
func reloaded(t *testing.T, s store.Store) map[string]bool {
	t.Helper()
	w := newTestServer(t, s, live(s))
	cursor := cursorOf(w.get("/chat/changes?user=alice"))
	none := func() bool { return w.config.Feeds.Stats().Watchers == 0 }
	require.Eventually(t, none, eventually, tick)
	for method, request := range map[string][2]string{
		http.MethodGet:  {"?user=alice&wait=50s&cursor=" + cursor, ""},
		http.MethodPost: {"", `{"users":["alice"],"wait":"50s","cursor":"` + cursor + `"}`},
	} {
		polled := make(chan testResponse, 1)
		go func() { polled <- w.send(method, "/chat/changes"+request[0], request[1]) }()
		require.Eventually(t, func() bool { return w.config.Feeds.Stats().Watchers == 1 }, eventually, tick)
		w.reload(func(c *Config) {
			if c.Settings.Visibility == VisibleToContacts {
				c.Settings.Visibility = VisibleToEveryone
			} else {
				c.Settings.Visibility = VisibleToContacts
			}
		})
		require.Equal(t, http.StatusServiceUnavailable, (<-polled).status)
		require.Eventually(t, none, eventually, tick)
	}
	return w.responses()
}

// TestVisibleRequestsFail: while contacts cannot be read, polls and new streams and connections fail.
func TestVisibleRequestsFail(t *testing.T) {
	t.Parallel()
	s := &contactStore{Store: fileStore(t)}
	set, key, of := visibleToContacts(t)
	w := newSocketServerOn(t, s, set)
	w.post("/chat/users/ann/ping", "", key)
	w.know("ann", "vic")
	s.fails.Store(true)
	for _, query := range []string{"user=ann", "user=ann&wait=5s", ""} {
		for _, accept := range []string{"*/*", "text/event-stream"} {
			w.fails(problem.StoreUnavailable, http.MethodGet, "/chat/changes?"+query, "", of("vic"), "Accept: "+accept)
		}
	}
	for _, watch := range []string{`{"users":["ann"]}`, `{"everyone":true}`} {
		c := w.dialSocket("chat", of("vic"))
		c.send(`{"hello":{"watch":` + watch + `}}`)
		c.fails(problem.StoreUnavailable)
	}
	c, _ := w.hello(`{}`, of("vic"))
	c.refuses(problem.StoreUnavailable, `{"watch":{"add":["ann"]}}`)
	s.fails.Store(false)
	require.Equal(t, []string{"ann green"}, statuses(c.asks(`{"watch":{"add":["ann"]}}`, frameChanges)))
}
