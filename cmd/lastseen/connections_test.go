package main

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// devicesStore is a store that takes whatever devices assert.
type devicesStore struct{ store.Store }

func (devicesStore) Now(context.Context) (lastseen.Instant, error) { return 1, nil }

func (devicesStore) RecordDevices(
	_ context.Context, _ string, _ time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	return make([]lastseen.State, len(batch)), nil
}

func (devicesStore) Disconnects(
	context.Context, store.DisconnectPosition,
) ([]store.Disconnect, store.DisconnectPosition, error) {
	return nil, "here", nil
}

func TestMetricsOfConnections(t *testing.T) {
	r := connections.New(connections.Options{
		Store: devicesStore{}, Settings: func(string) connections.Settings { return connections.Settings{} },
	})
	registry := prometheus.NewRegistry()
	storeMetrics{registry}.connections(r)
	for _, how := range []connections.Ending{
		connections.Left, connections.Gone, connections.Silent, connections.Ended,
	} {
		c, err := r.Open(t.Context(), connections.Opening{Namespace: "chat", User: "alice", Grace: time.Minute})
		require.NoError(t, err)
		if how == connections.Left {
			_, err = c.Leave(t.Context())
			require.NoError(t, err)
		}
		c.End(how)
	}
	_, err := r.Open(t.Context(), connections.Opening{Namespace: "chat", User: "alice"})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{
		"lastseen_connections": 1, "lastseen_connections_opened_total": 5,
		"lastseen_connections_goodbyes_total": 1, "lastseen_connections_lost_total": 1,
		"lastseen_connections_waiting": 1, "lastseen_connections_unwritten": 0,
		"lastseen_connections_forgotten_total": 0, "lastseen_connections_dropped_goodbyes_total": 0,
	}, values(t, registry))
}
