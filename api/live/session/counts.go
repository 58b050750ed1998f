package session

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
)

const (
	countsInterval = 5 * time.Second  // between two counts of a namespace
	countsTimeout  = 30 * time.Second // of one
)

// countsHub counts the users of namespaces for all sessions that want counts: once for each namespace and time. The
// zero value is ready to use, and its methods may be called concurrently.
type countsHub struct {
	mu     sync.Mutex
	spaces map[string]*countedSpace
}

// countedSpace is a namespace that is counted. It remains until it is due after the last session has left, so that a
// session that comes and goes does not cause more counts.
type countedSpace struct {
	followers map[*following]struct{}
	last      *counted // nil before the first
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
		go h.count(f.Hub, f.namespace, space)
	}
	space.followers[f] = struct{}{}
	if space.last != nil {
		f.setCounts(space.last)
	}
}

func (h *countsHub) leave(f *following) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if space := h.spaces[f.namespace]; space != nil {
		delete(space.followers, f)
	}
}

// count counts a namespace now and then, as long as it has sessions, and gives them what has changed.
func (h *countsHub) count(hub *Hub, namespace string, space *countedSpace) {
	n, err := hub.newest.Load().countNow(namespace)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && n != nil && (space.last == nil || !maps.Equal(space.last.users, n.users)) {
		space.last = n
		for f := range space.followers {
			f.setCounts(n)
		}
	}
	time.AfterFunc(countsInterval, func() {
		if h.isFollowed(namespace) {
			h.count(hub, namespace, space)
		}
	})
}

// isFollowed reports whether a namespace has sessions, and forgets it otherwise.
func (h *countsHub) isFollowed(namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.spaces[namespace].followers) > 0 {
		return true
	}
	delete(h.spaces, namespace)
	return false
}

// counted are the counts of a namespace at a time.
type counted struct {
	users map[lastseen.Status]int64
	asOf  lastseen.Instant
}

// countNow returns the current counts of a namespace; nil if the load leaves no room for them.
func (s *Server) countNow(namespace string) (*counted, error) {
	if s.Load.Refuses(guard.DeepList) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), countsTimeout)
	defer cancel()
	n, asOf, err := s.Count(ctx, namespace)
	return &counted{n, asOf}, err
}

// checkCounts returns an error if a caller cannot get counts on a connection. They are the same for all connections, of
// all users.
func (s *Server) checkCounts(namespace string, caller *auth.Caller) error {
	if !s.Viewer(caller, namespace).Restricted {
		return nil
	}
	return problem.New(problem.Forbidden, "Only API keys get counts on a connection, because users are visible to "+
		"their contacts in this namespace. A request for counts counts the contacts that you see.")
}

// beginCounts begins to send counts. It counts as one request.
func (f *following) beginCounts(s *Server) error {
	if err := s.checkCounts(f.namespace, f.currentCaller()); err != nil {
		return err
	}
	if f.counted {
		return nil
	}
	if err := s.CheckLoad(); err != nil {
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
func (f *following) setCounts(c *counted) {
	f.latest.Store(c)
	f.wake()
}

// sendCounts sends counts, unless the caller cannot get them any longer since a reload.
func (f *following) sendCounts(c counted) bool {
	if f.newest.Load().checkCounts(f.namespace, f.currentCaller()) != nil {
		return true
	}
	return f.send(append(appendShown([]byte(`{"counts":`), ShowCounts(c.users, c.asOf)), '}'))
}
