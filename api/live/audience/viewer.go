// Package audience decides who sees whom in a namespace where users are visible to contacts, and reads users and
// follows their changes as one of them sees these: all others look as if they had never been seen. It also follows the
// contacts of a user, in all namespaces. See docs/decisions/visibility.md.
package audience

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen/store"
)

// Viewer is as whom a caller sees the users of a namespace.
type Viewer struct {
	Restricted bool   // not everyone is shown
	User       string // if restricted: this user is shown, and who has them among their contacts; "" for nobody
}

// contactsPage is the number of pairs, or of contacts, in one call of the store.
const contactsPage = 1000

// AreSeen reports for each pair whether the contact sees the owner. Users see themselves, without a question to the
// store.
func AreSeen(ctx context.Context, s store.Contacts, namespace string, pairs []store.ContactPair) ([]bool, error) {
	seen := make([]bool, len(pairs))
	asked, at := make([]store.ContactPair, 0, len(pairs)), make([]int, 0, len(pairs))
	for i, pair := range pairs {
		if seen[i] = pair.Owner == pair.Contact; !seen[i] {
			asked, at = append(asked, pair), append(at, i)
		}
	}
	for len(asked) > 0 {
		n := min(len(asked), contactsPage)
		are, err := s.AreContacts(ctx, namespace, asked[:n])
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

// Sees reports for each user whether the viewer sees them. One that is not restricted sees everyone.
func (v Viewer) Sees(ctx context.Context, s store.Contacts, namespace string, users []string) ([]bool, error) {
	if !v.Restricted || v.User == "" {
		return slices.Repeat([]bool{!v.Restricted}, len(users)), nil
	}
	pairs := make([]store.ContactPair, len(users))
	for i, user := range users {
		pairs[i] = store.ContactPair{Owner: user, Contact: v.User}
	}
	return AreSeen(ctx, s, namespace, pairs)
}

// eachPage calls read for each page of a user's contacts. It charges each page but the first before it reads it. It
// reads no more contacts than a user can have: if they change meanwhile, some of those that were added can be missing.
func eachPage(
	ctx context.Context, s store.Contacts, namespace, owner string, charge func() error, read func([]string) error,
) error {
	after := ""
	for total := 0; total < store.MaxContacts; {
		if total > 0 {
			if err := charge(); err != nil {
				return err
			}
		}
		contacts, err := s.ListContacts(ctx, namespace, owner, after, contactsPage)
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
