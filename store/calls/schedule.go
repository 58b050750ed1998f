package calls

import (
	"time"

	"github.com/tidwall/btree"
)

// schedule has the time at which each of its keys is due. The zero value is empty.
type schedule[K comparable] struct {
	slots map[K]slot[K]
	queue *btree.BTreeG[slot[K]] // nil before the first slot
	count uint64                 // of the slots that were ever made
}

type slot[K comparable] struct {
	key    K
	due    time.Duration
	number uint64
}

func (a slot[K]) before(b slot[K]) bool {
	return a.due < b.due || a.due == b.due && a.number < b.number
}

// set has a key due at a time, instead of the time before.
func (s *schedule[K]) set(key K, due time.Duration) {
	s.remove(key)
	if s.queue == nil {
		s.slots, s.queue = map[K]slot[K]{}, btree.NewBTreeGOptions(slot[K].before, btree.Options{NoLocks: true})
	}
	s.count++
	s.slots[key] = slot[K]{key, due, s.count}
	s.queue.Set(s.slots[key])
}

// advance has a key due at a time unless it is due before.
func (s *schedule[K]) advance(key K, due time.Duration) {
	if !s.has(key) || s.after(key, due) {
		s.set(key, due)
	}
}

func (s *schedule[K]) has(key K) bool {
	_, found := s.slots[key]
	return found
}

// after reports whether a key is due after a time.
func (s *schedule[K]) after(key K, t time.Duration) bool { return s.has(key) && s.slots[key].due > t }

func (s *schedule[K]) remove(key K) {
	if s.has(key) {
		s.queue.Delete(s.slots[key])
		delete(s.slots, key)
	}
}

// pop removes a key that is due and returns it; false if none is.
func (s *schedule[K]) pop(now time.Duration) (key K, ok bool) {
	if s.rest(now, longestWait) > 0 {
		return key, false
	}
	first, _ := s.queue.PopMin()
	delete(s.slots, first.key)
	return first.key, true
}

// rest returns the time until the first key is due, at most a maximum, and 0 if one is.
func (s *schedule[K]) rest(now, most time.Duration) time.Duration {
	if len(s.slots) == 0 {
		return most
	}
	first, _ := s.queue.Min()
	return max(0, min(first.due-now, most))
}
