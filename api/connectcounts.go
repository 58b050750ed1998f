package api

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

const (
	countsInterval = 5 * time.Second  // between two counts of a namespace
	countsTimeout  = 30 * time.Second // of one
)

// countsHub counts the users of namespaces for all sessions that want counts: once for each namespace and time. The
// zero value is ready to use, and its methods may be called concurrently.
type countsHub struct {
	mu      sync.Mutex
	spaces  map[string]*countedSpace
	running bool // a round is planned
}

// countedSpace is a namespace that is counted. It remains until the round after the last session has left, so that a
// session that comes and goes does not cause more counts.
type countedSpace struct {
	followers map[*following]struct{}
	last      *countsResponse // nil before the first
	counting  bool
}

// join has a session get the counts of its namespace from now on.
func (h *countsHub) join(f *following) {
	h.mu.Lock()
	defer h.mu.Unlock()
	space := h.spaces[f.namespace]
	if space == nil {
		space = &countedSpace{followers: map[*following]struct{}{}}
		if h.spaces == nil {
			h.spaces = map[string]*countedSpace{}
		}
		h.spaces[f.namespace] = space
		go h.count(f.Shared, f.namespace)
	}
	space.followers[f] = struct{}{}
	if space.last != nil {
		f.setCounts(space.last)
	}
	if !h.running {
		h.running = true
		time.AfterFunc(countsInterval, func() { h.round(f.Shared) })
	}
}

func (h *countsHub) leave(f *following) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if space := h.spaces[f.namespace]; space != nil {
		delete(space.followers, f)
	}
}

// round counts all namespaces, one after the other, and plans the next round.
func (h *countsHub) round(shared *Shared) {
	h.mu.Lock()
	var namespaces []string
	for name, space := range h.spaces {
		if len(space.followers) == 0 && !space.counting {
			delete(h.spaces, name)
		} else {
			namespaces = append(namespaces, name)
		}
	}
	h.running = len(h.spaces) > 0
	again := h.running
	h.mu.Unlock()
	for _, name := range namespaces {
		h.count(shared, name)
	}
	if again {
		time.AfterFunc(countsInterval, func() { h.round(shared) })
	}
}

// count counts a namespace, and gives its sessions the result if it has changed.
func (h *countsHub) count(shared *Shared, namespace string) {
	if !h.beginCount(namespace) {
		return
	}
	counted, err := shared.newest.Load().countNow(namespace)
	h.mu.Lock()
	defer h.mu.Unlock()
	space := h.spaces[namespace]
	space.counting = false
	if err != nil || counted == nil || space.last != nil && space.last.sameUsers(*counted) {
		return
	}
	space.last = counted
	for f := range space.followers {
		f.setCounts(counted)
	}
}

// beginCount reports whether to count a namespace now.
func (h *countsHub) beginCount(namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	space := h.spaces[namespace]
	if space == nil || space.counting {
		return false
	}
	space.counting = true
	return true
}

// countNow returns the current counts of a namespace; nil if the load leaves no room for them.
func (s *server) countNow(namespace string) (*countsResponse, error) {
	if s.load.Refuses(guard.DeepList) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), countsTimeout)
	defer cancel()
	now, err := s.latest(ctx, s.Store, namespace)
	if err != nil {
		return nil, err
	}
	n, err := store.CountByStatus(ctx, s.Store, namespace, s.settings(namespace).Thresholds, now, 0, now)
	if err != nil {
		return nil, err
	}
	return new(showCounts(n, now)), nil
}

func (r countsResponse) sameUsers(other countsResponse) bool {
	return r.Green == other.Green && r.Yellow == other.Yellow && r.Grey == other.Grey
}

// checkCounts returns an error if a caller cannot get counts on a connection. They are the same for all connections, of
// all users.
func (s *server) checkCounts(namespace string, caller *auth.Caller) error {
	if !s.viewerOf(caller, namespace).Restricted {
		return nil
	}
	return problem.New(problem.Forbidden, "Only API keys get counts on a connection, because users are visible to "+
		"their contacts in this namespace. A request for counts counts the contacts that you see.")
}

// beginCounts begins to send counts. It counts as one request.
func (f *following) beginCounts(s *server) error {
	if err := s.checkCounts(f.namespace, f.currentCaller()); err != nil {
		return err
	}
	if f.counted {
		return nil
	}
	if err := s.followed.CheckLoad(); err != nil {
		return err
	}
	if err := f.charge(1); err != nil {
		return err
	}
	f.counted = true
	f.counting.join(f)
	return nil
}

func (f *following) endCounts() {
	if f.counted {
		f.counted = false
		f.counting.leave(f)
	}
}

// setCounts has counts sent soon, instead of those that have not been sent yet.
func (f *following) setCounts(c *countsResponse) {
	f.latest.Store(c)
	f.waiting.Wake()
}

// sendCounts sends counts, unless the caller cannot get them any longer since a reload.
func (f *following) sendCounts(c countsResponse) bool {
	if f.server().checkCounts(f.namespace, f.currentCaller()) != nil {
		return true
	}
	encoded, err := json.Marshal(c)
	return err == nil && f.send(append(append([]byte(`{"counts":`), encoded...), '}'))
}
