package calls

import (
	"context"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	listEvery  = 10 * time.Second
	listPage   = 1000                   // namespaces
	listSpread = time.Millisecond       // each namespace adds it to the time between two lists
	manyListed = 1000                   // from this namespace on, first visits are spread
	firstVisit = 500 * time.Microsecond // between two of these
)

// renew requests or extends the lease.
func (w *watch) renew(ctx context.Context, now time.Duration) {
	w.asked = max(1, now)
	granted, err := w.store.Lease(ctx, leaseName, leaseTime)
	w.mu.Lock()
	w.report(ctx, "", err)
	had := w.held != 0
	switch {
	case granted && err == nil:
		w.held = now + leaseTime
	case err == nil, now >= w.held:
		w.forget()
	}
	has := w.held != 0
	w.mu.Unlock()
	if has && !had {
		w.listNamespaces(ctx)
	}
}

// forget forgets what only the server with the lease knows. The caller holds the mutex.
func (w *watch) forget() {
	w.held, w.calls = 0, 0
	w.namespaces, w.due = map[string]*watched{}, schedule[string]{}
}

// release gives up the lease.
func (w *watch) release(ctx context.Context) {
	w.mu.Lock()
	held := w.held > w.monotonic()
	w.forget()
	w.mu.Unlock()
	if !held {
		return
	}
	store.Release(ctx, w.store, leaseName)
	w.asked = 0
}

// listNamespaces finds namespaces that may have calls. A server without the lease only finds out whether there are any.
func (w *watch) listNamespaces(ctx context.Context) {
	w.mu.Lock()
	held := w.held != 0
	w.mu.Unlock()
	limit := 1
	if held {
		limit = listPage
	}
	found, err := w.readNamespaces(ctx, limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.monotonic()
	if err != nil {
		w.report(ctx, "", err)
		w.list = now + retryAfter
		return
	}
	w.list = now + max(listEvery, time.Duration(len(found))*listSpread)
	w.listed = len(found) > 0
	if held {
		w.take(found, now)
	}
}

// readNamespaces returns the first namespaces that may have calls, or all of them if the limit is that of a page.
func (w *watch) readNamespaces(ctx context.Context, limit int) (found []string, err error) {
	for after := ""; ; after = found[len(found)-1] {
		page, err := w.store.CallNamespaces(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
		if len(page) < listPage {
			return found, nil
		}
	}
}

// take visits namespaces that were found and are not known, and forgets those without calls that were not found. The
// caller holds the mutex.
func (w *watch) take(found []string, now time.Duration) {
	exist := make(map[string]bool, len(found))
	added := 0
	for _, name := range found {
		exist[name] = true
		if w.namespaces[name] == nil {
			w.add(name)
			w.due.set(name, now+time.Duration(max(0, added-manyListed))*firstVisit)
			added++
		}
	}
	for name, n := range w.namespaces {
		if !exist[name] && n.calls == 0 && !n.visit && w.due.after(name, now+retryAfter) {
			delete(w.namespaces, name)
			w.due.remove(name)
		}
	}
}
