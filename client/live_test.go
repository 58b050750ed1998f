package client_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestBatch: many goroutines ping and look up, each with its own outcome.
func TestBatch(t *testing.T) {
	eachStore(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		b := c.Batch("chat")
		errs := make([]error, 300)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				user := fmt.Sprint("user", i)
				if i%10 == 0 {
					user = "." // not valid
				}
				errs[i] = b.Ping(ctx, user, client.Ping{})
			})
		}
		all.Wait()
		for i, err := range errs {
			if i%10 == 0 {
				require.ErrorContains(t, err, "invalid_user")
				continue
			}
			require.NoError(t, err)
			all.Go(func() {
				users := []string{"nobody", fmt.Sprint("user", i), "nobody"}
				found, err := b.Lookup(ctx, users...)
				grey, green := lastseen.Grey, lastseen.Green
				if err != nil || found[0].Status != grey || found[1].Status != green || found[2] != found[0] {
					errs[i] = fmt.Errorf("%v: %v, %w", users, found, err)
				}
			})
		}
		all.Wait()
		for i, err := range errs {
			require.Equal(t, i%10 != 0, err == nil, err)
		}
		_, err := b.Lookup(ctx, ".")
		require.Error(t, err)
		require.Error(t, b.Ping(ctx, "a\xff", client.Ping{}), "the name would be another one")
		require.Error(t, b.Ping(ctx, "alice", client.Ping{Device: &client.Device{ID: "d", Meta: json.RawMessage("{x")}}))
		long := json.RawMessage(`{"a":"` + strings.Repeat("a", 100_000) + `"}`)
		require.Error(t, b.Ping(ctx, "alice", client.Ping{Device: &client.Device{ID: "d", Meta: long}}))
		many := make([]string, 2500)
		for i := range many {
			many[i] = fmt.Sprint("user", i)
		}
		found, err := b.Lookup(ctx, many...)
		require.NoError(t, err)
		require.Equal(t, "user2499", found[2499].User)
	})
}

// TestBatchSendsFewRequests: 2,000 lookups take fewer than half as many requests.
func TestBatchSendsFewRequests(t *testing.T) {
	t.Parallel()
	counter := &requests{RoundTripper: http.DefaultTransport}
	ctx, c := connect(t, testserver.Start(t), client.Options{HTTP: &http.Client{Transport: counter}})
	cache := c.Cache("chat", client.CacheOptions{MaxAge: time.Hour})
	var all sync.WaitGroup
	for range 2000 {
		all.Go(func() { _, _ = cache.Lookup(ctx, "alice", "bob") })
	}
	all.Wait()
	before := counter.n.Load()
	require.Less(t, before, int64(1000))
	found, err := cache.Lookup(ctx, "alice", "bob")
	require.NoError(t, err)
	require.Equal(t, "bob", found[1].User)
	require.Equal(t, before, counter.n.Load())
}

// TestPinger: it keeps a user online through an outage, and says when the user leaves.
func TestPinger(t *testing.T) {
	t.Parallel()
	args := []string{
		"--store", filepath.Join(t.TempDir(), "data.db"), "--ping-interval", "1s", "--green", "2s",
		"--listen", redistest.FreeAddr(t, "127.0.0.1"),
	}
	s := testserver.Start(t, args...)
	ctx, c := connect(t, s, client.Options{Tries: 1})
	pings := make(chan error, 1000)
	p := c.StartPinger("chat", "alice", client.PingerOptions{
		Device: &client.Device{ID: "d"}, OnPing: func(_ client.Presence, err error) { pings <- err },
	})
	require.NoError(t, <-pings)
	require.NoError(t, <-pings)
	p.SetActivity("idle")
	require.Eventually(t, func() bool {
		a, err := c.GetUser(ctx, "chat", "alice", client.Evaluate{})
		return err == nil && a.Activity == "idle"
	}, time.Minute, 10*time.Millisecond)
	s.Terminate(t)
	for (<-pings) == nil {
	}
	testserver.Start(t, args...)
	for (<-pings) != nil {
	}
	require.NoError(t, p.Stop(ctx))
	a, err := c.GetUser(ctx, "chat", "alice", client.Evaluate{})
	require.NoError(t, err)
	require.True(t, a.Left)

	p = c.StartPinger("chat", ".", client.PingerOptions{OnPing: func(_ client.Presence, err error) { pings <- err }})
	for err = nil; err == nil; {
		err = <-pings
	}
	require.ErrorContains(t, err, "invalid_user")
	require.Error(t, p.Stop(ctx))
	require.Empty(t, pings)
}

// TestFollow: a roster of everyone, of named users and of contacts knows who is there, says when it does not, and goes
// on after a restart.
func TestFollow(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, store []string) {
		args := slices.Concat(store, []string{"--listen", redistest.FreeAddr(t, "127.0.0.1")})
		s := testserver.Start(t, args...)
		ctx, c := connect(t, s, client.Options{})
		require.NoError(t, c.SetContacts(ctx, "chat", "zoe", []string{"alice", "carol"}))
		n, err := c.RecordPings(ctx, "chat", []client.Event{{User: "alice"}, {User: "bob"}})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		rosters := map[string]*client.Roster{}
		for name, f := range map[string]client.Follow{
			"everyone": {}, "named": {Users: []string{"alice", "carol"}}, "contacts": {ContactsOf: "zoe"},
			"green": {Status: []lastseen.Status{lastseen.Green}},
		} {
			roster := &client.Roster{}
			rosters[name] = roster
			go func() {
				for changes, err := range c.FollowChanges(ctx, "chat", f) {
					roster.Apply(changes, err)
				}
			}()
		}
		until := func(want map[string]lastseen.Status) {
			t.Helper()
			for name, roster := range rosters {
				for user, status := range want {
					if name == "green" && status == lastseen.Grey {
						continue // nothing is sent of users who were never seen
					}
					require.Eventually(t, func() bool {
						p, known := roster.Get(user)
						return known && p.Status == status
					}, 45*time.Second, 10*time.Millisecond, "%s: %s", name, user)
				}
			}
		}
		until(map[string]lastseen.Status{"alice": lastseen.Green, "carol": lastseen.Grey})
		_, err = c.PingUser(ctx, "chat", "carol", client.Ping{})
		require.NoError(t, err)
		until(map[string]lastseen.Status{"alice": lastseen.Green, "carol": lastseen.Green})
		s.Terminate(t)
		testserver.Start(t, args...)
		require.NoError(t, c.DeleteUser(ctx, "chat", "carol"))
		until(map[string]lastseen.Status{"alice": lastseen.Green, "carol": lastseen.Grey})
		users, known := rosters["everyone"].All()
		require.True(t, known)
		require.Len(t, users, 2)
		require.Equal(t, "bob", users[1].User)
	})
}

// TestFollowEnds: where a repetition would not help, when the loop ends, and with the context.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	ctx, c := connect(t, testserver.Start(t), client.Options{})
	var errs []string
	for _, err := range c.FollowChanges(ctx, "chat", client.Follow{Users: []string{"."}}) {
		errs = append(errs, err.Error())
	}
	require.Len(t, errs, 1)
	require.Contains(t, errs[0], "invalid_user")
	_, err := c.PingUser(ctx, "chat", "alice", client.Ping{}) // or the cursor ends when the namespace begins
	require.NoError(t, err)
	var first client.Changes
	for changes, err := range c.FollowChanges(ctx, "chat", client.Follow{Users: []string{"alice"}}) {
		require.NoError(t, err)
		first = changes
		break
	}
	require.True(t, first.Reset)
	require.NotEmpty(t, first.Cursor)
	_, err = c.RecordLeave(ctx, "chat", "alice", client.Leave{})
	require.NoError(t, err)
	ending, end := context.WithCancel(ctx)
	for changes, err := range c.FollowChanges(ending, "chat", client.Follow{Users: []string{"alice"}, Cursor: first.Cursor}) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			continue
		}
		require.False(t, changes.Reset)
		if len(changes.Users) > 0 {
			require.Equal(t, lastseen.Grey, changes.Users[0].Status)
			end()
		}
	}
	end()
	// A cursor that is none begins again.
	for changes, err := range c.FollowChanges(ctx, "chat", client.Follow{Users: []string{"alice"}, Cursor: "none"}) {
		require.NoError(t, err)
		require.True(t, changes.Reset)
		require.Len(t, changes.Users, 1)
		break
	}
}

// TestVerifier: events of a server are read, and others refused.
func TestVerifier(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))
	v, err := client.NewVerifier("whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 24))), secret)
	require.NoError(t, err)
	events := make(chan client.WebhookEvent, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := v.Read(r)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		events <- e
	}))
	t.Cleanup(receiver.Close)
	ctx, c := connect(t, testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"webhooks:\n  app: {url: %q, secrets-file: %q, namespaces: [chat]}\n",
		receiver.URL, testserver.WriteFile(t, "secrets", []byte(secret))))), client.Options{})
	attempt, err := c.TestWebhook(ctx, "app")
	require.NoError(t, err)
	require.Equal(t, client.WebhookAttempt{Result: "delivered"}, attempt)
	e := <-events
	require.Equal(t, [2]string{"test", "app"}, [2]string{e.Type, e.Webhook})
	require.NotEmpty(t, e.ID)
	require.NoError(t, c.EnableWebhook(ctx, "app"))
	_, err = c.PingUser(ctx, "chat", "alice", client.Ping{})
	require.NoError(t, err)
	for e.Type != "presence.snapshot" || e.More {
		e = <-events
	}
	_, err = c.RecordLeave(ctx, "chat", "alice", client.Leave{})
	require.NoError(t, err)
	for len(e.Users) == 0 || e.Users[0].Status != lastseen.Grey {
		e = <-events
	}
	require.Equal(t, "presence.changed", e.Type)
	require.Equal(t, "chat", e.Namespace)
	require.Equal(t, "alice", e.Users[0].User)
	require.Equal(t, lastseen.Green, e.Users[0].Previous)
	hooks, err := c.ListWebhooks(ctx)
	require.NoError(t, err)
	require.Equal(t, "app", hooks[0].Webhook)

	for _, wrong := range []string{"no prefix", "whsec_c2hvcnQ=", "whsec_%"} {
		_, err := client.NewVerifier(wrong)
		require.Error(t, err, wrong)
	}
	_, err = client.NewVerifier()
	require.Error(t, err)
}

// TestVerifierRefuses: what is not signed by a secret, was changed, or is old.
func TestVerifierRefuses(t *testing.T) {
	t.Parallel()
	raw := []byte(strings.Repeat("s", 32))
	v, err := client.NewVerifier("whsec_" + base64.StdEncoding.EncodeToString(raw))
	require.NoError(t, err)
	hook, err := standardwebhooks.NewWebhookRaw(raw)
	require.NoError(t, err)
	const body = `{"type":"test","timestamp":"2026-01-01T00:00:00Z","data":{"webhook":"app"}}`
	signed := func(at time.Time) http.Header {
		signature, err := hook.Sign("id", at, []byte(body))
		require.NoError(t, err)
		h := http.Header{}
		h.Set("webhook-id", "id")
		h.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
		h.Set("webhook-signature", signature)
		return h
	}
	_, err = v.Verify([]byte(body), signed(time.Now()))
	require.NoError(t, err)
	_, err = v.Verify([]byte(body+" "), signed(time.Now()))
	require.Error(t, err)
	_, err = v.Verify([]byte(body), signed(time.Now().Add(-time.Hour)))
	require.Error(t, err)
	_, err = v.Verify([]byte(body), http.Header{})
	require.Error(t, err)
}
