package store

import (
	"context"
	"errors"
	"slices"
)

// The errors of contacts.
var (
	// ErrNoContacts means that users of the namespace cannot have contacts, as long as settings do not change: other
	// programs also write it.
	ErrNoContacts = errors.New("the namespace has no contacts")
	// ErrTooManyContacts means that the user would have more than MaxContacts. Nothing was changed.
	ErrTooManyContacts = errors.New("the user has too many contacts")
	// ErrContactsChanged means that another call changed the contacts of the owner while this one was in progress,
	// which then stopped: part of its change was made.
	ErrContactsChanged = errors.New("the contacts were changed meanwhile")
	// ErrOwnContact means that a user is named as their own contact.
	ErrOwnContact = errors.New("a user cannot be their own contact")
)

// MaxContacts is the number of contacts of a user at most.
const MaxContacts = 5000

// Contacts keeps whom each user knows. A contact is one user in the list of another, the owner. It has a direction:
// that bob is a contact of alice does not make alice a contact of bob. Contacts need not exist as users.
//
// Calls do not commute: the last one counts. A change of many contacts can be made in parts: those that are removed
// go before the first one is added, so that nobody is a contact who is not one before or after. If another call changes
// the contacts of the owner meanwhile, the parts that follow are not made, and the call returns ErrContactsChanged; so
// what the other call removed does not come back. After this or another error some parts may be missing. A call without
// error has made exactly its change. Trim does not delete contacts. Forget and DeleteNamespace delete those
// that the user owns; the user stays in the lists of others, which are theirs. RemoveEmpty keeps a namespace in which
// a user has contacts. The embedded store returns after a change is on the disk. A feed says whose contacts changed:
// see [Changes].
//
// # The last use
//
// TrimContacts deletes the contacts of owners who have not used anything for long. An owner's last use is the newest
// of:
//
//   - the last call of SetContacts or ChangeContacts after which the owner had contacts, also if it changed nothing;
//   - the owner's last-seen time, also one that Trim has deleted since;
//   - the last call of SetAvailability about the owner;
//   - the present, or the end of it, while the owner has a hidden time: see [Availabilities]. Pings in it count, but
//     are not recorded.
//
// Reading contacts does not count. Stores learn of pings only when TrimContacts, Trim or the end of a hidden time asks
// for them, so that pings cost nothing. The last use of owners whose contacts an earlier version recorded is not known:
// it is the first time that TrimContacts finds them. It finds all of them as it is called again and again.
//
// IDs passed in pass [lastseen.CheckStoredUser], and an owner is not among their own. Those that are named twice count
// once. All methods return ErrNoContacts, and record nothing, if the namespace cannot have contacts.
type Contacts interface {
	// SetContacts replaces the contacts of an owner. It creates the namespace like Ping, unless there are no contacts.
	// It returns ErrTooManyContacts if there are more than MaxContacts.
	SetContacts(ctx context.Context, namespace, owner string, contacts []string) error

	// ChangeContacts adds and removes contacts of an owner. An ID that is in both is removed. Adding what is there, and
	// removing what is not, changes nothing. It creates the namespace like Ping, unless it adds nothing. It returns
	// ErrTooManyContacts if the owner would have more than MaxContacts afterwards. Up to 500 contacts are added and
	// removed atomically.
	ChangeContacts(ctx context.Context, namespace, owner string, add, remove []string) error

	// ListContacts returns up to limit contacts of an owner that come after an ID, in bytewise order; from the first
	// one if after is "". Fewer than the limit means that no more follow.
	ListContacts(ctx context.Context, namespace, owner, after string, limit int) ([]string, error)

	// AreContacts reports for each pair whether the contact is one of the owner's, in the order asked.
	AreContacts(ctx context.Context, namespace string, pairs []ContactPair) ([]bool, error)

	// TrimContacts deletes all contacts of owners whose last use is longer ago than the query's age: of up to MaxTrim
	// owners who together have up to MaxContacts contacts. As with Trim, the store's own clock decides, read in the
	// same call, and if it is more than MaxClockDrift away from the query's Now, TrimContacts deletes nothing and
	// returns ErrClockMoved, unless there are no contacts. Call it until there are no more to delete.
	TrimContacts(ctx context.Context, namespace string, q TrimQuery) (ContactsTrimResult, error)
}

// ContactsTrimResult reports what TrimContacts did.
type ContactsTrimResult struct {
	Owners   int  // whose contacts were deleted; at most MaxTrim
	Contacts int  // deleted; at most MaxContacts
	Held     bool // contacts were kept because All is false, and the namespace or a shard of it would have none left
	More     bool // the call reached a limit: another one may delete more
}

// ContactPair names an owner of contacts and a user to look for among them.
type ContactPair struct{ Owner, Contact string }

// ContactChanges returns the changes that [Contacts.ChangeContacts] asks for: each ID once, in bytewise order, and
// those to add without those to remove.
func ContactChanges(add, remove []string) (added, removed []string) {
	removed = slices.Compact(slices.Sorted(slices.Values(remove)))
	added = slices.Compact(slices.Sorted(slices.Values(add)))
	return Without(added, removed), removed
}

// Without returns the IDs of a list that are not in another one, each once, in the order of the list.
func Without(list, other []string) []string {
	seen, rest := make(map[string]struct{}, len(other)), make([]string, 0, len(list))
	for _, id := range other {
		seen[id] = struct{}{}
	}
	for _, id := range list {
		if _, found := seen[id]; !found {
			seen[id] = struct{}{}
			rest = append(rest, id)
		}
	}
	return rest
}
