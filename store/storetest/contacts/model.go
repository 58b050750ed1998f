package contacts

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// contactsModel is what a store should hold: for each owner, the set of contacts.
type contactsModel struct {
	store.Store
	owners map[string]map[string]bool
}

var (
	drawOwner    = rapid.SampledFrom([]string{"a", "aa", "b", "é"})
	drawContacts = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "xx", "y", "z", "Z", "ü"}), 0, 5)
)

// testContactsModel compares a store with a model while random calls change both.
func testContactsModel(t *testing.T, open kit.Open) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &contactsModel{Store: open(t), owners: map[string]map[string]bool{}}
		rt.Repeat(map[string]func(*rapid.T){
			"":       m.compare,
			"set":    m.set,
			"change": m.change,
			"forget": m.forget,
			"ping":   func(t *rapid.T) { kit.Ping(t, m, drawOwner.Draw(t, "user"), kit.Base) },
			"trim":   func(t *rapid.T) { kit.Trim(t, m, kit.Namespace, kit.Now(t, m)-kit.Minute, true) },
			"empty":  m.removeEmpty,
			"delete": m.delete,
		})
	})
}

func (m *contactsModel) set(t *rapid.T) {
	owner, contacts := drawOwner.Draw(t, "owner"), drawContacts.Draw(t, "contacts")
	Set(t, m, owner, contacts...)
	m.owners[owner] = map[string]bool{}
	for _, contact := range contacts {
		m.owners[owner][contact] = true
	}
}

func (m *contactsModel) change(t *rapid.T) {
	owner, add, remove := drawOwner.Draw(t, "owner"), drawContacts.Draw(t, "add"), drawContacts.Draw(t, "remove")
	changeContacts(t, m, owner, add, remove)
	now := maps.Clone(m.owners[owner])
	if now == nil {
		now = map[string]bool{}
	}
	for _, contact := range add {
		now[contact] = true
	}
	for _, contact := range remove {
		delete(now, contact)
	}
	m.owners[owner] = now
}

func (m *contactsModel) forget(t *rapid.T) {
	owner := drawOwner.Draw(t, "owner")
	kit.Forget(t, m, owner)
	delete(m.owners, owner)
}

func (m *contactsModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	clear(m.owners)
}

func (m *contactsModel) removeEmpty(t *rapid.T) {
	if kit.RemoveEmpty(t, m, kit.Namespace) {
		for owner, contacts := range m.owners {
			require.Empty(t, contacts, owner)
		}
	}
}

func (m *contactsModel) compare(t *rapid.T) {
	any := false
	for _, owner := range []string{"a", "aa", "b", "é"} {
		want := slices.Sorted(maps.Keys(m.owners[owner]))
		any = any || len(want) > 0
		require.Equal(t, append([]string{}, want...), Of(t, m, owner), owner)
		for _, contact := range []string{"x", "xx", "y", "z", "Z", "ü", "a"} {
			require.Equal(t, []bool{m.owners[owner][contact]},
				areContacts(t, m, store.ContactPair{Owner: owner, Contact: contact}), "%s, %s", owner, contact)
		}
	}
	if any {
		require.Equal(t, []string{kit.Namespace}, kit.Existing(t, m))
	}
}

// retentionModel is what a store should hold: for each owner of contacts, their number, and when users last used
// anything.
type retentionModel struct {
	kit.Breakable
	passed    time.Duration
	contacts  map[string]int
	used      map[string]time.Duration
	invisible map[string]bool
}

var drawHours = rapid.SampledFrom([]time.Duration{hour, 2 * hour, 5 * hour})

// testContactsRetentionModel compares a store with a model while random calls change both.
func testContactsRetentionModel(t *testing.T, open func(testing.TB) kit.Breakable) {
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
			"empty":        func(t *rapid.T) { kit.RemoveEmpty(t, m, kit.Namespace) },
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
	Set(t, m, owner, numberedUsers(n)...)
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
	write := rapid.SampledFrom(kit.Writes(m)).Draw(t, "write")
	write.In(t, kit.Namespace, kit.Now(t, m), user)
	m.use(user)
}

func (m *retentionModel) say(t *rapid.T) {
	user := drawOwner.Draw(t, "user")
	m.invisible[user] = rapid.Bool().Draw(t, "invisible")
	what := availability.Nothing
	if m.invisible[user] {
		what = availability.Invisible
	}
	availability.Set(t, m, user, what)
	m.use(user)
}

func (m *retentionModel) forget(t *rapid.T) {
	user := drawOwner.Draw(t, "user")
	kit.Forget(t, m, user)
	delete(m.contacts, user)
	delete(m.invisible, user)
}

func (m *retentionModel) trim(t *rapid.T) {
	kit.Trim(t, m, kit.Namespace, kit.Now(t, m).Add(-drawHours.Draw(t, "age")-hour/2), true)
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
	require.Equal(t, want, Trim(t, m, age, true))
}

func (m *retentionModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	clear(m.contacts)
	clear(m.invisible)
}

func (m *retentionModel) compare(t *rapid.T) {
	for _, owner := range []string{"a", "aa", "b", "é"} {
		want := append([]string{}, numberedUsers(m.contacts[owner])...)
		require.Equal(t, want, Of(t, m, owner), owner)
	}
}
