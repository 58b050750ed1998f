package calls

import (
	"container/heap"
	"time"
)

// schedule has the time at which each of its keys is due. The zero value is empty.
type schedule[K comparable] struct {
	queue queue[K]
	slots map[K]*slot[K]
}

type slot[K comparable] struct {
	key   K
	due   time.Duration
	index int
}

// set has a key due at a time, instead of the time before.
func (s *schedule[K]) set(key K, due time.Duration) {
	if old := s.slots[key]; old != nil {
		old.due = due
		heap.Fix(&s.queue, old.index)
		return
	}
	if s.slots == nil {
		s.slots = map[K]*slot[K]{}
	}
	added := &slot[K]{key: key, due: due}
	s.slots[key] = added
	heap.Push(&s.queue, added)
}

// advance has a key due at a time unless it is due before.
func (s *schedule[K]) advance(key K, due time.Duration) {
	if old := s.slots[key]; old == nil || old.due > due {
		s.set(key, due)
	}
}

func (s *schedule[K]) has(key K) bool { return s.slots[key] != nil }

// after reports whether a key is due after a time.
func (s *schedule[K]) after(key K, t time.Duration) bool { return s.has(key) && s.slots[key].due > t }

func (s *schedule[K]) remove(key K) {
	if old := s.slots[key]; old != nil {
		heap.Remove(&s.queue, old.index)
		delete(s.slots, key)
	}
}

// pop removes a key that is due and returns it; false if none is.
func (s *schedule[K]) pop(now time.Duration) (key K, due time.Duration, ok bool) {
	if len(s.queue) == 0 || s.queue[0].due > now {
		return key, 0, false
	}
	first := s.queue[0]
	s.remove(first.key)
	return first.key, first.due, true
}

// rest returns the time until the first key is due, at most a maximum, and 0 if one is.
func (s *schedule[K]) rest(now, most time.Duration) time.Duration {
	if len(s.queue) == 0 {
		return most
	}
	return max(0, min(s.queue[0].due-now, most))
}

// queue implements [heap.Interface].
type queue[K comparable] []*slot[K]

func (q queue[K]) Len() int           { return len(q) }
func (q queue[K]) Less(i, k int) bool { return q[i].due < q[k].due }

func (q queue[K]) Swap(i, k int) {
	q[i], q[k] = q[k], q[i]
	q[i].index, q[k].index = i, k
}

func (q *queue[K]) Push(added any) {
	last := added.(*slot[K])
	last.index = len(*q)
	*q = append(*q, last)
}

func (q *queue[K]) Pop() any {
	n := len(*q) - 1
	last := (*q)[n]
	(*q)[n] = nil
	*q = (*q)[:n]
	return last
}
