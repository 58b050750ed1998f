package audience

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Users is how requests read users: the methods of a store that show what is known of users to others.
type Users interface {
	store.Reader
	store.Lister

	Describe(ctx context.Context, namespace string, users []string) ([]lastseen.State, map[string]store.Details, error)
	ReadDetails(ctx context.Context, namespace string, records []store.Record) (map[string]store.Details, error)
	ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error)
}

// UsersFor returns the users of a store as a viewer sees them, for one request and one namespace. It charges each page
// of contacts after the first that it reads.
func UsersFor(s store.Store, v Viewer, charge func() error) Users {
	if !v.Restricted {
		return s
	}
	return &seenUsers{store: s, viewer: v, charge: charge}
}

// seenUsers are the users of a store as one of them sees these, the viewer: with the viewer, and the users who have the
// viewer among their contacts. All others look as if they had never been seen, also by the calls that are made to the
// store: they depend only on what was asked, and nothing is read about users who are not seen. Lists and counts have
// only the viewer's own contacts, as far as the viewer sees them.
//
// If contacts cannot be read, its methods fail: nothing is shown then. One goroutine uses it, that of a request.
type seenUsers struct {
	store  store.Store
	viewer Viewer
	charge func() error  // charges one request to the caller
	known  *seenContacts // nil until they are read
}

// seenContacts are the viewer's contacts that the viewer sees and that were seen before.
type seenContacts struct {
	records []store.Record
	details map[string]store.Details
}

// Describe is the method of [store.Store] for users that the viewer sees; others have no state and no details. In place
// of each of the others it looks up the viewer, so that the number of those who are seen does not change how long it
// takes. The details can have those of the viewer besides.
func (s *seenUsers) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	shown := make([]lastseen.State, len(users))
	if s.viewer.User == "" {
		return shown, nil, nil
	}
	seen, err := s.viewer.Sees(ctx, s.store, namespace, users)
	if err != nil {
		return nil, nil, err
	}
	asked := slices.Clone(users)
	for i := range asked {
		if !seen[i] {
			asked[i] = s.viewer.User
		}
	}
	states, details, err := s.store.Describe(ctx, namespace, asked)
	if err != nil {
		return nil, nil, err
	}
	for i := range users {
		if seen[i] {
			shown[i] = states[i]
		}
	}
	return shown, details, nil // of those who were asked for
}

// ReadDevices is the method of [store.Store] for a user that the viewer sees; others have no devices. In place of
// theirs it reads those of the viewer.
func (s *seenUsers) ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error) {
	if s.viewer.User == "" {
		return store.UserDevices{}, nil
	}
	seen, err := s.viewer.Sees(ctx, s.store, namespace, []string{user})
	if err != nil {
		return store.UserDevices{}, err
	}
	if seen[0] {
		return s.store.ReadDevices(ctx, namespace, user)
	}
	_, err = s.store.ReadDevices(ctx, namespace, s.viewer.User)
	return store.UserDevices{}, err
}

// This file has the methods of [seenUsers] that name no users, such as lists and counts. They read the viewer's
// contacts, at most [store.MaxContacts], and compute the result in memory.

// List implements [store.Lister].
func (s *seenUsers) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	known, err := s.contacts(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var listed []store.Record
	for _, r := range known.records {
		if inAny(q.Ranges, r.State) && (q.After == nil || q.Order.Compare(*q.After, r) < 0) {
			listed = append(listed, r)
		}
	}
	slices.SortFunc(listed, q.Order.Compare)
	return listed[:min(len(listed), q.Limit)], nil
}

// inAny reports whether a state is in one of the ranges.
func inAny(ranges []lastseen.Range, state lastseen.State) bool {
	return slices.ContainsFunc(ranges, func(r lastseen.Range) bool { return r.Contains(state) })
}

// Count implements [store.Reader].
func (s *seenUsers) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	known, err := s.contacts(ctx, namespace)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(ranges))
	for _, r := range known.records {
		for i := range ranges {
			if ranges[i].Contains(r.State) {
				counts[i]++
			}
		}
	}
	return counts, nil
}

// Newest implements [store.Reader].
func (s *seenUsers) Newest(ctx context.Context, namespace string) (newest lastseen.Instant, err error) {
	known, err := s.contacts(ctx, namespace)
	if err != nil {
		return 0, err
	}
	for _, r := range known.records {
		newest = max(newest, r.At)
	}
	return newest, nil
}

// ReadDetails returns the details of users that List returned, of the moment at which their states were read. Others
// have none.
func (s *seenUsers) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	known, err := s.contacts(ctx, namespace)
	if err != nil || len(known.details) == 0 {
		return nil, err
	}
	details := map[string]store.Details{}
	for _, r := range records {
		if d, ok := known.details[r.User]; ok {
			details[r.User] = d
		}
	}
	return details, nil
}

// contacts returns the viewer's contacts that the viewer sees. It reads them once: see [eachPage].
func (s *seenUsers) contacts(ctx context.Context, namespace string) (*seenContacts, error) {
	if s.known != nil {
		return s.known, nil
	}
	known := &seenContacts{details: map[string]store.Details{}}
	if s.viewer.User != "" {
		add := func(page []string) error { return s.addSeen(ctx, namespace, known, page) }
		if err := eachPage(ctx, s.store, namespace, s.viewer.User, s.charge, add); err != nil {
			return nil, err
		}
	}
	s.known = known
	return known, nil
}

// addSeen adds those of some contacts that the viewer sees and that were seen before.
func (s *seenUsers) addSeen(ctx context.Context, namespace string, known *seenContacts, contacts []string) error {
	if len(contacts) == 0 {
		return nil
	}
	states, details, err := s.Describe(ctx, namespace, contacts)
	if err != nil {
		return err
	}
	for i, contact := range contacts {
		if !states[i].Known() {
			continue
		}
		known.records = append(known.records, store.Record{User: contact, State: states[i]})
		if d, ok := details[contact]; ok {
			known.details[contact] = d
		}
	}
	return nil
}
