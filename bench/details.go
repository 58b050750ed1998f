package main

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// sayingNS is a namespace with the users of randomNS. Every tenth of them has an availability.
const sayingNS = "saying"

const (
	sayingEvery  = 10 // one of so many users says something
	sayingAtOnce = 64 // requests in progress while that is loaded
)

// detailsComparisons returns the comparisons about what users say. All are measured only if their row is requested.
func detailsComparisons() (all []comparison) {
	line := func(row int, work, series, subject, reference string, least float64) {
		c := ratio(row, work, series+", 64 connections", at(subject, 64), at(reference, 64), atLeast(least))
		c.long = true
		all = append(all, c)
	}
	for _, store := range []string{"", onFile} {
		for _, work := range []string{"ping", "lookup of 100"} {
			line(28, work+" of users without details"+store+": this version ÷ before", "versions"+store,
				work+store+", "+thisVersion, work+store+", "+beforeVersion, 0.98)
		}
	}
	for i, store := range []string{"", onFile} {
		line(29, "lookup of 100"+store+": every tenth says something ÷ none does", "details"+store,
			sayingLookup+store, "lookup of 100"+store+", "+thisVersion, []float64{0.7, 0.8}[i])
	}
	return all
}

// sayingLookup names the workload that looks up users of sayingNS.
const sayingLookup = "lookup of 100, every tenth says something"

// sayingRequests returns the workloads that look up users who say something.
func sayingRequests() (all []request) {
	for _, store := range []string{"", onFile} {
		r := lookup(sayingLookup+store, thisVersion+store, sayingNS, 100)
		r.contains = `"note":"` + sayingNote
		all = append(all, r)
	}
	return all
}

// sayingNote begins the note of each user who says something. The rest is the user's ID.
const sayingNote = "in a meeting, "

// say makes every sayingEvery-th user say something.
func (u users) say(ctx context.Context, url, namespace string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sayingAtOnce}}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sayingAtOnce)
	for i := 0; i < u.len(); i += sayingEvery {
		group.Go(func() error {
			path := fmt.Sprintf("%s/v1/namespaces/%s/users/%s/availability", url, namespace, u.id(i))
			body := fmt.Sprintf(`{"availability":"busy","note":"%s%s"}`, sayingNote, u.id(i))
			const header = "Content-Type: application/json"
			status, response, err := doWith(ctx, client, http.MethodPut, path, header, []byte(body))
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("PUT %s returned %d %.200s", path, status, response)
			}
			return err
		})
	}
	return group.Wait()
}
