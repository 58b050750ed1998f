package privacy

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
)

// The servers of a site are part of the test, not the program: at chosen moments, tests delete by retention, remove a
// namespace and make users invisible in the past, which only the store of a server can do.

func settingsOf(namespace string) api.Settings {
	s := api.Settings{
		Thresholds:   lastseen.Thresholds{Green: 10 * time.Hour, Yellow: 20 * time.Hour},
		PingInterval: 3 * time.Second, Shards: 1, Changes: feed.Auto, ShowKinds: true, ShowCalls: true,
		Visibility: api.VisibleToEveryone, RingTimeout: api.DefaultRingTimeout,
	}
	switch "/v1/namespaces/" + namespace {
	case room:
		s.Visibility = api.VisibleToContacts
	case hall:
		s.RingTimeout = 10 * time.Minute
	case booth:
		s.RingTimeout = 2 * time.Second
	case yard:
		s.Thresholds = lastseen.Thresholds{Green: time.Second, Yellow: 2 * time.Second}
	}
	return s
}

// accessOfSites returns who can do what: users with tokens, keys, and everyone in a yard.
func accessOfSites() auth.Config {
	c := auth.Config{
		Tokens: &auth.Tokens{
			Secret: []byte(testserver.Secret), Issuer: "https://id.example.com", Audience: "lastseen",
			Leeway: 30 * time.Second, Namespaces: []auth.Pattern{"*"},
		},
		AnonymousRead: []auth.Pattern{"yard"},
	}
	for name, scopes := range map[string][]auth.Scope{
		"reader": {auth.Read}, "writer": {auth.Ping}, "admin": {auth.Admin}, "all": auth.Scopes(),
		"outside": {auth.Read, auth.Ping},
	} {
		namespaces := []auth.Pattern{"*"}
		if name == "outside" {
			namespaces = []auth.Pattern{"else"}
		}
		c.Keys = append(c.Keys, auth.Key{
			Name: name, Hash: sha256.Sum256([]byte("ls_" + name)), Scopes: scopes, Namespaces: namespaces,
		})
	}
	return c
}

// openOnFile returns a site of one server with an embedded store.
func openOnFile(t testing.TB) site {
	t.Helper()
	return openSite(t, 1, func(shared *api.Shared, logger *slog.Logger) (store.Store, error) {
		return filestore.Open(filestore.Options{
			Path: storetest.DataFile(t), Sync: time.Second, Gap: shared.Telemetry.ObserveGap, Logger: logger,
		})
	})
}

// openOnRedis returns a site of two servers on a Redis, whose keys have a prefix.
func openOnRedis(t testing.TB, url, prefix string) site {
	t.Helper()
	return openSite(t, 2, func(shared *api.Shared, logger *slog.Logger) (store.Store, error) {
		redis, err := redisstore.Open(redisstore.Options{
			URL: url, Prefix: prefix, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
			Gap: shared.Telemetry.ObserveGap, Logger: logger,
		})
		if err != nil {
			return nil, err
		}
		return coalesce.New(redis, coalesce.Options{Timeout: 30 * time.Second}), nil
	})
}

// openSite returns a site of some servers. Its store is that of the last one.
func openSite(
	t testing.TB, servers int, open func(shared *api.Shared, logger *slog.Logger) (store.Store, error),
) (all site) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	all.sent = &sentTimes{}
	for range servers {
		shared := api.NewShared(api.Config{Logger: logger})
		s, err := open(shared, logger)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		all.servers, all.store = append(all.servers, serveSite(t, s, shared, logger, all.sent)), s
	}
	return all
}

// serveSite serves the API on a store as the program does until the test ends, and returns the URL.
func serveSite(
	t testing.TB, s store.Store, shared *api.Shared, logger *slog.Logger, sent *sentTimes,
) (url string) {
	t.Helper()
	authenticator, err := auth.New(accessOfSites(), auth.Options{Logger: logger})
	require.NoError(t, err)
	c := api.Config{
		Store: s, Settings: settingsOf(""), Namespaces: map[string]api.Settings{}, Auth: authenticator,
		Logger: logger, Shared: shared, WebSockets: api.WebSocketLimits{PerUser: 16},
	}
	for _, namespace := range []string{room, hall, booth, yard} {
		name := namespace[len("/v1/namespaces/"):]
		c.Namespaces[name] = settingsOf(name)
	}
	background := addBackground(t, &c)
	handler := api.New(c)
	running, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for _, run := range background {
		work.Go(func() { run(running) })
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := guard.NewServer(handler, logger)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&timedListener{listener, sent}) }()
	t.Cleanup(func() {
		shared.Drain()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		shared.EndWebSockets(now)
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		defer cancel()
		c.Connections.Stop(ctx)
		require.NoError(t, server.Shutdown(ctx))
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		stop()
		work.Wait()
		authenticator.Close()
	})
	return "http://" + listener.Addr().String()
}

// addBackground adds what a server runs beside its handler: feeds, connections, calls and signals.
func addBackground(t testing.TB, c *api.Config) (background []func(ctx context.Context)) {
	t.Helper()
	feedOf := func(namespace string) feed.Settings {
		s := settingsOf(namespace)
		return feed.Settings{Thresholds: s.Thresholds, Mode: s.Changes}
	}
	watermarks := jobs.NewWatermarks(c.Store, func() []string { return nil }, feedOf, c.Logger)
	c.Feeds = feed.New(feed.Options{Store: c.Store, Settings: feedOf, Recorded: watermarks.Add, Logger: c.Logger})
	c.Connections = connections.New(connections.Options{
		Store: c.Store, Logger: c.Logger, Left: c.Shared.Telemetry.CountLeft,
		Settings: func(namespace string) connections.Settings {
			s := settingsOf(namespace)
			return connections.Settings{Thresholds: s.Thresholds, PingInterval: s.PingInterval}
		},
	})
	c.Calls = calls.New(c.Store, c.Logger)
	c.Calls.Timeout = func(namespace string) time.Duration { return settingsOf(namespace).Thresholds.Green }
	c.Calls.Active = c.Connections.ActiveWithin
	names := func() []string { return []string{"booth", "hall", "room", "yard"} }
	jobs.NewRegistrar(c.Store, names, nil, c.Logger).Once(t.Context())
	return []func(context.Context){c.Feeds.Run, watermarks.Run, c.Connections.Run, c.Calls.Run, c.Shared.Listen}
}
