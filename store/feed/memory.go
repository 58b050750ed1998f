package feed

import (
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// view is what readers see of a user besides the time.
type view struct {
	statusByte
	details *store.Details // nil for most users, who have none
}

func viewOf(status lastseen.Status, left bool, d store.Details) view {
	v := view{statusByte: toStatusByte(status, left)}
	if d != (store.Details{}) {
		kept := d // only that is on the heap
		v.details = &kept
	}
	return v
}

// before and after return the views before and after a change.
func before(c *store.Change) view { return viewOf(c.WasStatus, c.WasLeft, c.Was) }
func after(c *store.Change) view  { return viewOf(c.Status, c.Left, c.Details) }

// published returns the view as it is published, without the time.
func (v view) published() store.Published {
	return store.Published{
		State: lastseen.State{Left: v.left()}, Status: v.status(), Details: v.detailsOf(),
	}
}

// same reports whether readers see no difference between two views.
func (v view) same(other view) bool {
	return v.statusByte == other.statusByte && v.detailsOf() == other.detailsOf()
}

func (v view) detailsOf() store.Details {
	if v.details == nil {
		return store.Details{}
	}
	return *v.details
}

// statusByte is a status, and whether the user left, in one byte.
type statusByte uint8

const leftBit statusByte = 4

func toStatusByte(status lastseen.Status, left bool) statusByte {
	var s statusByte
	switch status {
	case lastseen.Green:
		s = 2
	case lastseen.Yellow:
		s = 1
	}
	if left {
		s |= leftBit
	}
	return s
}

func (s statusByte) left() bool { return s&leftBit != 0 }

func (s statusByte) status() lastseen.Status {
	switch s &^ leftBit {
	case 2:
		return lastseen.Green
	case 1:
		return lastseen.Yellow
	}
	return lastseen.Grey
}

// presence is what watchers are sent about a user after a change.
type presence struct {
	at, recorded lastseen.Instant
	now          view
}

func presenceAfter(c *store.Change) presence {
	return presence{at: c.At, recorded: c.Recorded, now: after(c)}
}

// forgotten reports whether the user was forgotten.
func (t presence) forgotten() bool { return t.at == 0 }

func (t presence) update(user string) Update {
	u := Update{User: user, Recorded: t.recorded, Published: t.now.published()}
	u.At = t.at
	return u
}

// entry is a change in memory. Entries are numbered from 1 in the order in which they were read.
type entry struct {
	presence
	user     *user // nil if only the position is kept
	position store.Position
	prev     int64 // number of the user's entry before, which may have been evicted; 0 if there is none
	shard    int32
	was      view
	blank    bool // only the position is valid: the user was forgotten later, or there is none
}

// user is a user who is watched, or who has entries in memory.
type user struct {
	presence        // after the newest change, if there was one
	name     string //
	newest   int64  // number of the newest entry; 0 if none is in memory
	watches  []*watch
	flapped  lastseen.Instant // when the user last changed too often
}

// readMark is the time at which entries were read.
type readMark struct {
	upTo int64
	at   time.Duration
}

// memory keeps the newest entries of a feed. Those of one shard are in the feed's order.
type memory struct {
	entries   []entry // from head on
	head      int
	first     int64 // number of the entry at head, or of the next one if there is none
	readMarks []readMark
	users     map[string]*user
	numbers   []map[store.Position]int64 // for each shard, the numbers of the entries at the positions
	base      []store.Position           // before the first entry
	positions []store.Position           // after the last entry; never changed in place, since watchers share it
}

func newMemory(positions []store.Position) memory {
	m := memory{
		first: 1, users: map[string]*user{}, base: slices.Clone(positions), positions: positions,
		numbers: make([]map[store.Position]int64, len(positions)),
	}
	for i := range m.numbers {
		m.numbers[i] = map[store.Position]int64{}
	}
	return m
}

func (m *memory) len() int           { return len(m.entries) - m.head }
func (m *memory) last() int64        { return m.first + int64(m.len()) - 1 }
func (m *memory) at(n int64) *entry  { return &m.entries[m.head+int(n-m.first)] }
func (m *memory) holds(n int64) bool { return n >= m.first && n <= m.last() }
func (m *memory) user(name string) *user {
	u := m.users[name]
	if u == nil {
		u = &user{name: name}
		m.users[name] = u
	}
	return u
}

// release removes a user without watches and entries.
func (m *memory) release(u *user) {
	if u.newest == 0 && len(u.watches) == 0 {
		delete(m.users, u.name)
	}
}

// add appends a change and returns its number. The earlier entries of a user who was forgotten are blanked.
func (m *memory) add(c *store.Change) int64 {
	u := m.user(c.User)
	e := entry{
		presence: presenceAfter(c), was: before(c),
		user: u, position: c.Position, prev: u.newest, shard: int32(c.Shard),
	}
	if e.forgotten() {
		for n := u.newest; m.holds(n); n = m.at(n).prev {
			old := m.at(n)
			old.blank, old.presence, old.was = true, presence{}, view{}
		}
		e.prev = 0
	}
	m.entries = append(m.entries, e)
	n := m.last()
	u.newest, u.presence = n, e.presence
	m.numbers[c.Shard][c.Position] = n
	return n
}

// skip appends a change of which only the position is kept.
func (m *memory) skip(c *store.Change) {
	m.entries = append(m.entries, entry{position: c.Position, shard: int32(c.Shard), blank: true})
	m.numbers[c.Shard][c.Position] = m.last()
}

// evict removes the oldest entries until at most keep are left and none was read before the given time. It returns the
// number of entries removed.
func (m *memory) evict(keep int, before time.Duration) int {
	had := m.len()
	for len(m.readMarks) > 0 && m.readMarks[0].at < before {
		m.evictTo(m.readMarks[0].upTo)
		m.readMarks = m.readMarks[1:]
	}
	if excess := m.len() - max(keep, 0); excess > 0 {
		m.evictTo(m.first + int64(excess) - 1)
	}
	if m.head > 64 && m.head > m.len() {
		m.entries = append(make([]entry, 0, 2*m.len()), m.entries[m.head:]...)
		m.head = 0
	}
	return had - m.len()
}

func (m *memory) evictTo(n int64) {
	for m.len() > 0 && m.first <= n {
		e := m.at(m.first)
		m.base[e.shard] = e.position
		if m.numbers[e.shard][e.position] == m.first {
			delete(m.numbers[e.shard], e.position)
		}
		if e.user != nil && e.user.newest == m.first {
			e.user.newest = 0
			m.release(e.user)
		}
		*e = entry{}
		m.head++
		m.first++
	}
}

// find returns, for each shard, the number up to which the entries are before the position; false if a position is not
// in memory.
func (m *memory) find(positions []store.Position) ([]int64, bool) {
	if len(positions) != len(m.positions) {
		return nil, false
	}
	numbers := make([]int64, len(positions))
	for shard, p := range positions {
		n, ok := m.numbers[shard][p]
		switch {
		case p == m.positions[shard]:
			n = m.last()
		case ok:
		case p == m.base[shard]:
			n = m.first - 1
		default:
			return nil, false
		}
		numbers[shard] = n
	}
	return numbers, true
}

// positionsAt returns the positions of a reader after the entries up to n. Before, the reader was at these positions,
// which are after the entries up to the numbers sent, one for each shard.
func (m *memory) positionsAt(n int64, sent []int64, positions []store.Position) []store.Position {
	if n == m.last() {
		return m.positions
	}
	positions = slices.Clone(positions)
	for shard := range positions {
		if sent[shard] < m.first-1 && n >= m.first-1 {
			positions[shard] = m.base[shard]
		}
	}
	for k := max(slices.Min(sent)+1, m.first); k <= n; k++ {
		if e := m.at(k); k > sent[e.shard] {
			positions[e.shard] = e.position
		}
	}
	return positions
}

// between returns the numbers of the oldest and the newest entry of a user above low and up to high, or 0 if there is
// none, and whether the user was forgotten in one of them.
func (m *memory) between(u *user, low, high int64) (oldest, newest int64, forgotten bool) {
	for n := u.newest; m.holds(n) && n > low; n = m.at(n).prev {
		if n > high {
			continue
		}
		if newest == 0 {
			newest = n
		}
		oldest = n
		forgotten = forgotten || m.at(n).forgotten()
	}
	return oldest, newest, forgotten
}

// flaps reports whether a user changed for the fifth time within a minute, at most once a minute. n is the user's
// newest entry.
func (m *memory) flaps(n int64) bool {
	e := m.at(n)
	old := n
	for range flapChanges {
		if old = m.at(old).prev; !m.holds(old) {
			return false
		}
	}
	since := e.recorded.Add(-flapTime)
	if m.at(old).recorded <= since || e.user.flapped > since && e.user.flapped <= e.recorded {
		return false
	}
	e.user.flapped = e.recorded
	return true
}
