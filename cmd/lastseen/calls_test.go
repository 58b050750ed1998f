package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// ringingStore is a store in which any call can begin, and whose signals are lost.
type ringingStore struct{ store.Store }

func (ringingStore) StartCall(_ context.Context, _ string, c store.NewCall) (store.CallStep, error) {
	return store.CallStep{
		Call: lastseen.Call{ID: c.ID, From: c.From, To: c.To, State: lastseen.Ringing}, Outcome: lastseen.Stepped,
	}, nil
}

func (ringingStore) Signal(context.Context, store.Signal) error { return store.ErrUnavailable }

func TestMetricsOfCalls(t *testing.T) {
	k := calls.New(ringingStore{}, slog.New(slog.DiscardHandler))
	registry := prometheus.NewRegistry()
	storeMetrics{registry}.callManager(k)
	_, finish, err := k.Start(t.Context(), "chat", store.NewCall{ID: "id", From: "alice", To: "bob"})
	require.NoError(t, err)
	finish()
	k.Follow("chat", "alice", lastseen.Call{ID: "id", From: "alice", To: "bob", State: lastseen.Ringing})
	k.Late(time.Second)
	want := map[string]float64{
		"lastseen_calls": 0, "lastseen_calls_followed": 1, "lastseen_calls_unclear": 1,
		"lastseen_calls_signals_repeated_total": 0, "lastseen_calls_expiry_lag_seconds": 1,
	}
	for _, state := range lastseen.CallStates() {
		want["lastseen_calls_total "+string(state)] = 0
	}
	want["lastseen_calls_total "+string(lastseen.Ringing)] = 1
	require.Equal(t, want, values(t, registry))
}
