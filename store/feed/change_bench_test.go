package feed

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkChange adds and removes one user of watchers that watch some others.
func BenchmarkChange(b *testing.B) {
	for _, watched := range []int{10, 100, 4999} {
		b.Run(fmt.Sprint(watched), func(b *testing.B) {
			h := New(Options{
				Store: newFakeStore(1), Settings: func(string) Settings { return Settings{Mode: Auto} },
				Logger: slog.New(slog.DiscardHandler),
			})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			go h.Run(ctx)
			var users []string
			for k := range watched {
				users = append(users, fmt.Sprint("user", k))
			}
			w, err := h.Watch(ctx, "chat", Query{Users: users})
			require.NoError(b, err)
			defer w.Close()
			_, err = w.Poll(ctx, 1)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, err = w.Change(ctx, Change{Add: []string{"ann"}})
				require.NoError(b, err)
				_, err = w.Change(ctx, Change{Remove: []string{"ann"}})
				require.NoError(b, err)
			}
		})
	}
}
