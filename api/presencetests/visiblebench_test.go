package presencetests

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// BenchmarkLookupVisible compares lookups of 1,000 users by a user's token where users are visible to everyone and to
// their contacts, half of whom the user sees, on both stores.
func BenchmarkLookupVisible(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"file", func(b *testing.B) store.Store {
			s, err := filestore.Open(filestore.Options{
				Path: b.TempDir() + "/lastseen.db", Sync: time.Second, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			return s
		}},
		{"redis", func(b *testing.B) store.Store { return kit.RedisStore(b, redistest.Start(b), kit.Sharded) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := c.open(b)
			for _, v := range []api.Visibility{api.VisibleToEveryone, api.VisibleToContacts} {
				b.Run(string(v), func(b *testing.B) { benchmarkLookup(b, s, v) })
			}
		})
	}
}

func benchmarkLookup(b *testing.B, s store.Store, v api.Visibility) {
	users := many(1000)
	pings := make([]store.PresenceEvent, len(users))
	for i, user := range users {
		pings[i] = store.PresenceEvent{User: user, At: kit.Now}
	}
	_, err := s.Ping(context.Background(), "chat", pings)
	require.NoError(b, err)
	knowAlice(b, s, users[:500])
	authenticator, err := auth.New(auth.Config{Tokens: kit.Tokens()},
		auth.Options{Now: func() time.Time { return time.UnixMilli(int64(kit.Now)) }})
	require.NoError(b, err)
	b.Cleanup(authenticator.Close)
	handler := api.New(api.Config{Store: s, Auth: authenticator, Settings: api.Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second, Visibility: v,
	}})
	body, err := json.Marshal(map[string]any{"users": users})
	require.NoError(b, err)
	request, err := http.NewRequest(http.MethodPost, "/v1/namespaces/chat/lookup", nil)
	require.NoError(b, err)
	request.Header.Set("Authorization", "Bearer "+kit.Token(b, "alice", kit.Now+3_600_000, "chat"))
	b.ReportAllocs()
	for b.Loop() {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		w := &kit.Sink{Headers: http.Header{}}
		handler.ServeHTTP(w, request)
		require.Equal(b, http.StatusOK, w.Status)
	}
}
