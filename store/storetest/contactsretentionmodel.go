package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
)

// retentionModel is what a store should hold: for each owner of contacts, their number, and when users last used
// anything.
type retentionModel struct {
	Breakable
	passed    time.Duration
	contacts  map[string]int
	used      map[string]time.Duration
	invisible map[string]bool
}

var drawHours = rapid.SampledFrom([]time.Duration{hour, 2 * hour, 5 * hour})

// testContactsRetentionModel compares a store with a model while random calls change both.
func testContactsRetentionModel(t *testing.T, open func(testing.TB) Breakable) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &retentionModel{
			Breakable: open(t), contacts: map[string]int{}, used: map[string]time.Duration{},
			invisible: map[string]bool{},
		}
		actions := map[string]func(*rapid.T){
			"":             m.compare,
			"set":          m.set,
			"change":       m.change,
			"assert":       m.assert,
			"say":          m.say,
			"forget":       m.forget,
			"trim":         m.trim,
			"trimContacts": m.trimContacts,
			"pass":         m.pass,
			"empty":        func(t *rapid.T) { removeEmpty(t, m, ns) },
			"delete":       m.delete,
		}
		if m.Restart != nil {
			actions["restart"] = func(*rapid.T) { m.Store = m.Restart() }
		}
		rt.Repeat(actions)
	})
}

func (m *retentionModel) use(user string) { m.used[user] = m.passed }

func (m *retentionModel) set(t *rapid.T) {
	owner, n := drawOwner.Draw(t, "owner"), rapid.IntRange(0, 3).Draw(t, "contacts")
	setContacts(t, m, owner, numberedUsers(n)...)
	m.contacts[owner] = n
	m.use(owner)
}

// change adds nothing, or removes the last contact.
func (m *retentionModel) change(t *rapid.T) {
	owner := drawOwner.Draw(t, "owner")
	var remove []string
	if rapid.Bool().Draw(t, "removes") && m.contacts[owner] > 0 {
		m.contacts[owner]--
		remove = numberedUsers(m.contacts[owner] + 1)[m.contacts[owner]:]
	}
	changeContacts(t, m, owner, nil, remove)
	m.use(owner)
}

func (m *retentionModel) assert(t *rapid.T) {
	user := drawOwner.Draw(t, "user")
	write := rapid.SampledFrom(writes(m)).Draw(t, "write")
	write.in(t, ns, now(t, m), user)
	m.use(user)
}

func (m *retentionModel) say(t *rapid.T) {
	user := drawOwner.Draw(t, "user")
	m.invisible[user] = rapid.Bool().Draw(t, "invisible")
	what := nothing
	if m.invisible[user] {
		what = invisible
	}
	say(t, m, user, what)
	m.use(user)
}

func (m *retentionModel) forget(t *rapid.T) {
	user := drawOwner.Draw(t, "user")
	forget(t, m, user)
	delete(m.contacts, user)
	delete(m.invisible, user)
}

func (m *retentionModel) trim(t *rapid.T) {
	trim(t, m, ns, now(t, m).Add(-drawHours.Draw(t, "age")-hour/2), true)
}

func (m *retentionModel) pass(t *rapid.T) {
	d := drawHours.Draw(t, "passes")
	m.Pass(d)
	m.passed += d
	for user, is := range m.invisible {
		if is {
			m.use(user)
		}
	}
}

func (m *retentionModel) trimContacts(t *rapid.T) {
	age := drawHours.Draw(t, "age") + hour/2
	var want store.ContactsTrimResult
	for owner, n := range m.contacts {
		if n > 0 && m.passed-m.used[owner] > age {
			want.Owners++
			want.Contacts += n
			delete(m.contacts, owner)
		}
	}
	require.Equal(t, want, trimContacts(t, m, age, true))
}

func (m *retentionModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), ns))
	clear(m.contacts)
	clear(m.invisible)
}

func (m *retentionModel) compare(t *rapid.T) {
	for _, owner := range []string{"a", "aa", "b", "é"} {
		want := append([]string{}, numberedUsers(m.contacts[owner])...)
		require.Equal(t, want, contactsOf(t, m, owner), owner)
	}
}
