package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// agreements remembers the namespaces that were stored as this server stores them when they were last checked, each by
// the number of the round in which that was. The zero value is ready for use.
type agreements struct {
	round atomic.Int64
	last  sync.Map // name → agreement
}

type agreement struct {
	round int64
	calls bool // the namespace is in the list of those with calls
}

// load returns the agreement on a namespace; one of a round before the first if there is none.
func (a *agreements) load(name string) agreement {
	if last, found := a.last.Load(name); found {
		return last.(agreement)
	}
	return agreement{round: -1}
}

// keepAgreed is the number of rounds for which an unused namespace is remembered: an hour. Other servers remove
// namespaces, and new ones come.
const keepAgreed = int64(time.Hour / sampleEvery)

// expire returns a function that begins a round, except the first time.
func (a *agreements) expire() func(context.Context) {
	begun := false
	return func(context.Context) {
		if begun {
			a.nextRound()
		}
		begun = true
	}
}

// nextRound begins a round, in which namespaces are checked again.
func (a *agreements) nextRound() {
	round := a.round.Add(1)
	a.last.Range(func(name, last any) bool {
		if round-last.(agreement).round > keepAgreed {
			a.last.CompareAndDelete(name, last)
		}
		return true
	})
}

// current reports whether a namespace was checked in this round.
func (a *agreements) current(name string) bool {
	return a.load(name).round == a.round.Load()
}

// recent returns the names of the namespaces that were checked in the last minute.
func (a *agreements) recent() (names []string) {
	oldest := a.round.Load() - int64(time.Minute/sampleEvery)
	a.last.Range(func(name, last any) bool {
		if last.(agreement).round >= oldest {
			names = append(names, name.(string))
		}
		return true
	})
	return names
}

func (a *agreements) confirm(name string) {
	a.last.Store(name, agreement{round: a.round.Load()})
}

// setCalls notes whether a namespace is in the list of those with calls. That holds until its next check.
func (a *agreements) setCalls(name string, listed bool) {
	if last, found := a.last.Load(name); found {
		a.last.CompareAndSwap(name, last, agreement{last.(agreement).round, listed})
	}
}

func (a *agreements) known(name string) bool {
	_, found := a.last.Load(name)
	return found
}

// recheck has a namespace checked again before its next use.
func (a *agreements) recheck(name string) {
	if last := a.load(name); last.round == a.round.Load() {
		a.last.CompareAndSwap(name, last, agreement{round: last.round - 1})
	}
}

func (a *agreements) forget(name string) { a.last.Delete(name) }
