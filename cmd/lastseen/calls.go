package main

import (
	"context"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store/calls"
)

// newKeeper returns what keeps calls going. It lasts as long as the server: reloads change only what its functions
// return.
func (r *runtimeConfig) newKeeper() *calls.Keeper {
	keeper := calls.New(r.store, r.logger)
	storeMetrics{r.metrics}.keeper(keeper)
	keeper.Quiet = func(namespace string) time.Duration { return r.config().Namespace(namespace).Green }
	keeper.Heard = r.registry.HeardWithin
	keeper.Changed = r.shared.CallChanged
	return keeper
}

// keepCalls keeps calls going until stop is called, also while a server that was asked to stop finishes requests and
// waits for its connections. Stop waits for the end.
func (r *runtimeConfig) keepCalls(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { r.keeper.Run(running) })
	return func() {
		cancel()
		work.Wait()
	}
}
