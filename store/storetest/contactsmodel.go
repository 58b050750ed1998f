package storetest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
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
func testContactsModel(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &contactsModel{Store: open(t), owners: map[string]map[string]bool{}}
		rt.Repeat(map[string]func(*rapid.T){
			"":       m.compare,
			"set":    m.set,
			"change": m.change,
			"forget": m.forget,
			"ping":   func(t *rapid.T) { ping(t, m, drawOwner.Draw(t, "user"), base) },
			"trim":   func(t *rapid.T) { trim(t, m, ns, now(t, m)-minute, true) },
			"empty":  m.removeEmpty,
			"delete": m.delete,
		})
	})
}

func (m *contactsModel) set(t *rapid.T) {
	owner, contacts := drawOwner.Draw(t, "owner"), drawContacts.Draw(t, "contacts")
	setContacts(t, m, owner, contacts...)
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
	forget(t, m, owner)
	delete(m.owners, owner)
}

func (m *contactsModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), ns))
	clear(m.owners)
}

func (m *contactsModel) removeEmpty(t *rapid.T) {
	if removeEmpty(t, m, ns) {
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
		require.Equal(t, append([]string{}, want...), contactsOf(t, m, owner), owner)
		for _, contact := range []string{"x", "xx", "y", "z", "Z", "ü", "a"} {
			require.Equal(t, []bool{m.owners[owner][contact]},
				areContacts(t, m, store.ContactPair{Owner: owner, Contact: contact}), "%s, %s", owner, contact)
		}
	}
	if any {
		require.Equal(t, []string{ns}, existing(t, m))
	}
}
