package api

import (
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// visibleToContacts configures that users are visible to contacts, with an API key and tokens whose clock is real. It
// returns the header of the key, and of a user's token.
func visibleToContacts(t *testing.T) (set func(*Config), key string, of func(user string) string) {
	t.Helper()
	text, hash := auth.NewKey()
	authenticator, err := auth.New(auth.Config{
		Keys: []auth.Key{{Name: "key", Hash: hash, Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"*"}}},
		Tokens: &auth.Tokens{
			Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen", Namespaces: []auth.Pattern{"*"},
		},
	}, auth.Options{})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	of = func(user string) string {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "issuer", "aud": "lastseen", "sub": user, "exp": time.Now().Add(time.Hour).Unix(),
		}).SignedString(tokenSecret)
		require.NoError(t, err)
		return bearer(signed)
	}
	return func(c *Config) { c.Auth, c.Settings.Visibility = authenticator, VisibleToContacts }, bearer(text), of
}

// know sets the contacts of a user, and has the watchers on all servers learn it.
func (w *testServer) know(owner string, contacts ...string) {
	w.t.Helper()
	require.NoError(w.t, w.config.Store.SetContacts(w.t.Context(), "chat", owner, contacts))
	w.config.Shared.newest.Load().signalContacts(w.t.Context(), "chat", owner)
}

// TestVisibleOnServers: what contacts add and remove reaches the streams, long polls and WebSockets that are open, on
// all servers.
func TestVisibleOnServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		set, key, of := visibleToContacts(t)
		one.reload(set)
		two.reload(set)
		one.post("/chat/users/ann/ping", "", key)
		one.post("/chat/users/sam/ping", "", key)
		one.know("vic", "ann", "sam")
		const query = "/chat/changes?user=ann&user=sam"
		named := two.follow(http.MethodGet, query, "", of("vic"))
		everyone := two.follow(http.MethodGet, "/chat/changes", "", of("vic"))
		first := named.changes()
		require.Equal(t, []string{"ann grey", "sam grey"}, statuses(first.data))
		require.Empty(t, statuses(everyone.changes().data))
		socket, welcome := one.hello(`{"watch":{"users":["ann"]}}`, of("vic"))
		require.Equal(t, []string{"ann grey"}, statuses(welcome))
		others, _ := two.hello(`{"user":"vic","watch":{"everyone":true}}`, of("vic"))
		byKey, welcome := two.hello(`{"watch":{"users":["ann"]}}`, key)
		require.Equal(t, []string{"ann green"}, statuses(welcome))

		cursor, polled := first.id, make(chan testResponse, 1)
		poll := func() {
			go func() {
				polled <- two.send(http.MethodGet, query+"&wait=20s&cursor="+cursor, "", of("vic"))
			}()
		}
		want := func(status string) {
			t.Helper()
			require.Equal(t, []string{"ann " + status}, statuses(named.changes().data))
			require.Equal(t, []string{"ann " + status}, statuses(everyone.changes().data))
			require.Equal(t, []string{"ann " + status}, statuses(socket.want(frameChanges)))
			require.Equal(t, []string{"ann " + status}, statuses(others.want(frameChanges)))
			r := <-polled
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.Contains(t, statuses(r.json(t)), "ann "+status) // a reset has all, if it came before the request
			cursor = cursorOf(r.json(t))
		}
		poll()
		one.know("ann", "vic", "x")
		want("green")
		poll()
		one.post("/chat/users/sam/leave", "", key)
		one.know("ann", "x")
		want("grey")
		require.Equal(t, "ann grey", statuses(socket.asks(`{"watch":{"add":["ann","sam"]}}`, frameChanges))[0])
		byKey.asks(`{"watch":{"remove":["ann"]}}`, frameOK) // nothing else came before
		r := one.send(http.MethodGet, query+"&cursor="+cursor, "", of("vic"))
		require.Empty(t, statuses(r.json(t)))
		require.Equal(t, cursor, cursorOf(r.json(t)), "of another server")
	})
}

// TestVisibleReload: a reload that changes who sees the users of a namespace ends what follows changes there. Others do
// not.
func TestVisibleReload(t *testing.T) {
	t.Parallel()
	for _, before := range []Visibility{VisibleToContacts, VisibleToEveryone, ""} {
		t.Run(string(before), func(t *testing.T) {
			t.Parallel()
			set, key, of := visibleToContacts(t)
			after := VisibleToContacts
			if before == after {
				after = VisibleToEveryone
			}
			w := newSocketServer(t, set, func(c *Config) { c.Settings.Visibility = before })
			stream := w.follow(http.MethodGet, "/chat/changes?user=ann", "", of("vic"))
			cursor := stream.changes().id
			watches, _ := w.hello(`{"watch":{"users":["ann"]}}`, of("vic"))
			later, _ := w.hello(`{"user":"vic"}`, of("vic"))
			later.asks(`{"watch":{"add":["ann"]}}`, frameChanges)
			open, _ := w.hello(`{"user":"vic"}`, of("vic"))
			polled := make(chan testResponse, 1)
			go func() {
				polled <- w.send(http.MethodGet, "/chat/changes?user=ann&wait=50s&cursor="+cursor, "", of("vic"))
			}()
			require.Eventually(t, func() bool { // named by all four
				return w.config.Feeds.Stats().Watchers == 4
			}, eventually, tick)
			w.reload(func(*Config) {})
			w.reload(func(c *Config) { c.Namespaces = map[string]Settings{"other": {Visibility: after}} })
			w.post("/chat/users/bob/ping", "", key)
			watches.asks(`{"watch":{"add":["bob"]}}`, frameChanges) // it is open
			w.reload(func(c *Config) { c.Settings.Visibility = after })
			r := <-polled
			require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
			require.Equal(t, string(codeShuttingDown), r.json(t)["code"])
			for _, ok := stream.next(); ok; _, ok = stream.next() {
			}
			watches.closed(codeShuttingDown.closeCode(), string(codeShuttingDown))
			later.closed(codeShuttingDown.closeCode(), string(codeShuttingDown))
			open.asks(`{"activity":{"idle":false}}`, frameOK)
			require.Equal(t, true, w.send(http.MethodGet, "/chat/changes?user=ann&cursor="+cursor, "",
				of("vic")).json(t)["reset"], "a cursor of the time before")
			require.NotContains(t, w.log.String(), "level=ERROR")
			require.NotContains(t, w.log.String(), "level=WARN")
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
			w.fails(codeStoreUnavailable, http.MethodGet, "/chat/changes?"+query, "", of("vic"), "Accept: "+accept)
		}
	}
	for _, watch := range []string{`{"users":["ann"]}`, `{"everyone":true}`} {
		c := w.dialSocket("chat", of("vic"))
		c.send(`{"hello":{"watch":` + watch + `}}`)
		c.fails(codeStoreUnavailable)
	}
	c, _ := w.hello(`{}`, of("vic"))
	c.refuses(codeStoreUnavailable, `{"watch":{"add":["ann"]}}`)
	s.fails.Store(false)
	require.Equal(t, []string{"ann green"}, statuses(c.asks(`{"watch":{"add":["ann"]}}`, frameChanges)))
}

// TestVisibleStreamWaits: a stream shows nothing, not even ticks, while contacts cannot be read, and goes on then.
func TestVisibleStreamWaits(t *testing.T) {
	set, _, of := visibleToContacts(t)
	s := &contactStore{}
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		s.Store = w.config.Store
		authenticator, err := auth.New(auth.Config{
			Tokens: &auth.Tokens{
				Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen", Namespaces: []auth.Pattern{"*"},
			},
		}, auth.Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		w.reload(func(c *Config) { c.Store = s; set(c); c.Auth = authenticator })
		require.NoError(t, s.SetContacts(t.Context(), "chat", "alice", []string{"vic"}))
		r := w.follow(of("vic"))
		require.Equal(t, []string{"alice grey"}, statuses(r.changes().data))
		e, ok := r.next()
		require.True(t, ok)
		require.Equal(t, eventTick, e.name)
		s.fails.Store(true)
		events := make(chan sentEvent)
		go func() {
			for e, ok := r.next(); ok; e, ok = r.next() {
				events <- e
			}
		}()
		time.Sleep(40 * time.Second) // the contacts are due again, and one tick may have come before
		select {
		case e := <-events:
			require.Equal(t, eventTick, e.name)
		default:
		}
		require.NoError(t, record(t, s, "alice"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		select {
		case e := <-events:
			t.Errorf("%s while contacts cannot be read", e.name)
		default:
		}
		poll := w.send(http.MethodGet, "/changes?user=alice", of("vic"))
		require.NoError(t, poll.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, poll.StatusCode)
		s.fails.Store(false)
		began := time.Now()
		e = <-events
		require.Equal(t, eventChanges, e.name)
		require.Less(t, time.Since(began), 5*time.Second)
		w.config.Shared.Drain()
	})
}

func record(t *testing.T, s store.Store, user string) error {
	t.Helper()
	now, err := s.Now(t.Context())
	if err == nil {
		_, err = s.Ping(t.Context(), "chat", []store.Sighting{{User: user, At: now}})
	}
	return err
}
