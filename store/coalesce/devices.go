package coalesce

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// deviceCalls is the number of namespaces whose devices are recorded at the same time. Unlike for pings, the store has
// no call for several.
const deviceCalls = 8

// deviceItem is an event of a device with the window of its caller.
type deviceItem struct {
	store.DeviceEvent
	window time.Duration
}

// RecordDevices implements [store.Store]. Thousands of clients that connect at the same moment are a few calls.
func (s *Store) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	if len(batch) == 0 { // the store knows whether the namespace can have devices
		return s.Store.RecordDevices(ctx, namespace, window, batch)
	}
	items := make([]deviceItem, len(batch))
	for i, event := range batch {
		items[i] = deviceItem{event, window}
	}
	r, err := s.devices.do(ctx, namespace, items)
	return r.states, err
}

// recordBatches records the devices of each namespace. The batches of one namespace follow each other: the last state
// of a user is the final one.
func recordBatches(ctx context.Context, s store.Store, batches []*store.Batch[deviceItem]) {
	namespaces := map[string][]*store.Batch[deviceItem]{}
	for _, b := range batches {
		namespaces[b.Namespace] = append(namespaces[b.Namespace], b)
	}
	var running errgroup.Group
	running.SetLimit(deviceCalls)
	for _, turns := range namespaces {
		running.Go(func() error {
			for _, b := range turns {
				err := catchPanic(func() { recordBatch(ctx, s, b) })
				b.Err = errors.Join(b.Err, err)
			}
			return nil
		})
	}
	_ = running.Wait()
}

// recordBatch records the devices of a namespace, in one call unless its settings were changed just now.
func recordBatch(ctx context.Context, s store.Store, b *store.Batch[deviceItem]) {
	for rest := b.Items; len(rest) > 0 && b.Err == nil; {
		window := rest[0].window
		var events []store.DeviceEvent
		for len(rest) > 0 && rest[0].window == window {
			events, rest = append(events, rest[0].DeviceEvent), rest[1:]
		}
		var states []lastseen.State
		states, b.Err = s.RecordDevices(ctx, b.Namespace, window, events)
		b.States = append(b.States, states...)
	}
}
