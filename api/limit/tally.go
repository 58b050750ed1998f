package limit

import "sync"

// Tally counts what callers have at the same time. A caller that has nothing takes no memory. The zero value is ready
// to use, and its methods may be called concurrently.
type Tally struct {
	mu     sync.Mutex
	counts map[Key]int
}

// Add counts n more, or fewer if n is negative. It returns false, and counts nothing, if there would be more than max;
// 0 is no maximum.
func (t *Tally) Add(k Key, n, max int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 0 && max > 0 && t.counts[k]+n > max {
		return false
	}
	if t.counts == nil {
		t.counts = map[Key]int{}
	}
	if t.counts[k] += n; t.counts[k] == 0 {
		delete(t.counts, k)
	}
	return true
}
