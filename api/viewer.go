package api

import (
	"cmp"
	"context"
	"errors"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// Visibility says who sees the users of a namespace.
type Visibility string

// The visibilities.
const (
	// VisibleToEveryone means that every caller who can read the namespace sees all users. It is the default.
	VisibleToEveryone Visibility = "everyone"
	// VisibleToContacts means that a user's token sees only the user, and users who have the user among their contacts.
	// All others look as if they had never been seen. API keys see everyone.
	VisibleToContacts Visibility = "contacts"
)

// visibility returns who sees the users of a namespace.
func (s *server) visibility(namespace string) Visibility {
	return cmp.Or(s.settings(namespace).Visibility, VisibleToEveryone)
}

// errVisibility is the cause of what ends because the visibility of a namespace has changed.
var errVisibility = errors.New("the visibility of the namespace has changed")

// checkVisibility returns an error if a namespace has another visibility than before.
func (s *server) checkVisibility(namespace string, before Visibility) error {
	if s.visibility(namespace) == before {
		return nil
	}
	return problem.New(problem.ShuttingDown, "The configuration of the namespace has changed. Begin again.").
		Because(errVisibility)
}

// viewer is as whom a caller sees the users of a namespace.
type viewer struct {
	restricted bool   // not everyone is shown
	user       string // if restricted: this user is shown, and who has them among their contacts; "" for nobody
}

// viewerOf returns as whom a caller sees a namespace. Callers without credentials see nobody where users are visible to
// contacts, although the configuration does not let them read there.
func (s *server) viewerOf(caller *auth.Caller, namespace string) viewer {
	if s.visibility(namespace) != VisibleToContacts || caller == nil || caller.Kind == auth.ByKey {
		return viewer{}
	}
	if caller.Kind == auth.ByToken {
		return viewer{restricted: true, user: caller.Name}
	}
	return viewer{restricted: true}
}

// This file reads the contacts that decide who sees whom, for requests and for watchers.

// contactsPage is the number of pairs, or of contacts, in one call of the store.
const contactsPage = 1000

// askContacts is the method AreContacts of [store.Contacts], and pageContacts its method ListContacts.
type (
	askContacts  func(ctx context.Context, namespace string, pairs []store.ContactPair) ([]bool, error)
	pageContacts func(ctx context.Context, namespace, owner, after string, limit int) ([]string, error)
)

// areSeen reports for each pair whether the contact sees the owner. Users see themselves, without a question to the
// store.
func areSeen(ctx context.Context, ask askContacts, namespace string, pairs []store.ContactPair) ([]bool, error) {
	seen := make([]bool, len(pairs))
	asked, at := make([]store.ContactPair, 0, len(pairs)), make([]int, 0, len(pairs))
	for i, pair := range pairs {
		if seen[i] = pair.Owner == pair.Contact; !seen[i] {
			asked, at = append(asked, pair), append(at, i)
		}
	}
	for len(asked) > 0 {
		n := min(len(asked), contactsPage)
		are, err := ask(ctx, namespace, asked[:n])
		if err != nil {
			return nil, err
		}
		for k, is := range are {
			seen[at[k]] = is
		}
		asked, at = asked[n:], at[n:]
	}
	return seen, nil
}

// seenBy reports for each user whether a viewer sees them. The viewer "" sees nobody.
func seenBy(ctx context.Context, ask askContacts, namespace, viewer string, users []string) ([]bool, error) {
	if viewer == "" {
		return make([]bool, len(users)), nil
	}
	pairs := make([]store.ContactPair, len(users))
	for i, user := range users {
		pairs[i] = store.ContactPair{Owner: user, Contact: viewer}
	}
	return areSeen(ctx, ask, namespace, pairs)
}

// eachPage calls read for each page of a user's contacts. It charges each page but the first before it reads it. It
// reads no more contacts than a user can have: if they change meanwhile, some of those that were added can be missing.
func eachPage(
	ctx context.Context, page pageContacts, namespace, owner string, charge func() error, read func([]string) error,
) error {
	after := ""
	for total := 0; total < store.MaxContacts; {
		if total > 0 {
			if err := charge(); err != nil {
				return err
			}
		}
		contacts, err := page(ctx, namespace, owner, after, contactsPage)
		if err == nil {
			err = read(contacts)
		}
		if err != nil || len(contacts) < contactsPage {
			return err
		}
		total += len(contacts)
		after = contacts[len(contacts)-1]
	}
	return nil
}
