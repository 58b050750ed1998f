package api

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file has the methods of [seenStore] that name no users, such as lists and counts. They read the viewer's
// contacts, at most [store.MaxContacts], and compute the result in memory.

// List implements [store.Lister].
func (s *seenStore) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
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
func (s *seenStore) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
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
func (s *seenStore) Newest(ctx context.Context, namespace string) (newest lastseen.Instant, err error) {
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
func (s *seenStore) ReadDetails(
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
func (s *seenStore) contacts(ctx context.Context, namespace string) (*seenContacts, error) {
	if s.known != nil {
		return s.known, nil
	}
	known := &seenContacts{details: map[string]store.Details{}}
	if s.viewer != "" {
		add := func(page []string) error { return s.addSeen(ctx, namespace, known, page) }
		if err := eachPage(ctx, s.store.ListContacts, namespace, s.viewer, s.charge, add); err != nil {
			return nil, err
		}
	}
	s.known = known
	return known, nil
}

// addSeen adds those of some contacts that the viewer sees and that were seen before.
func (s *seenStore) addSeen(ctx context.Context, namespace string, known *seenContacts, contacts []string) error {
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
