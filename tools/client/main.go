// Command client uses a server through a client that oapi-codegen generates from openapi.yaml, like a caller in another
// project. TestGeneratedClient in api generates the client next to a copy of this file and runs both.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"
)

// main uses the server at the given URL, whose namespace "chat" is empty. The first check that fails panics.
func main() {
	ctx, client := context.Background(), must(NewClientWithResponses(os.Args[1]))
	ping(ctx, client)
	pingEarlier(ctx, client)
	lookup(ctx, client)
	list(ctx, client)
	problems(ctx, client)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(ok bool, what, status string, body []byte) {
	if !ok {
		panic(fmt.Sprintf("%s: %s %s", what, status, body))
	}
}

func ping(ctx context.Context, c *ClientWithResponses) {
	for _, user := range []string{"alice", "a/b", "ü"} {
		r := must(c.PingUserWithResponse(ctx, "chat", user, nil, PingRequest{}))
		p := r.JSON200
		ok := p != nil && p.User == user && p.Status == Green && p.PingAfterMs != nil && p.LastSeen != nil
		check(ok, "ping of "+user, r.Status(), r.Body)
	}
	minimal := "return=minimal"
	r := must(c.PingUserWithResponse(ctx, "chat", "alice", &PingUserParams{Prefer: &minimal}, PingRequest{}))
	ok := r.StatusCode() == http.StatusNoContent && r.Headers204 != nil && r.Headers204.LastseenPingAfterMs > 0
	check(ok, "ping without a body", r.Status(), r.Body)
}

// pingEarlier records two pings of two minutes ago by the server's clock: one in Unix seconds, one in RFC 3339.
func pingEarlier(ctx context.Context, c *ClientWithResponses) {
	now := must(c.GetUserWithResponse(ctx, "chat", "alice", nil))
	check(now.JSON200 != nil, "get", now.Status(), now.Body)
	then := now.JSON200.AsOf.Add(-2 * time.Minute)
	seconds, text := fmt.Sprintf("%.3f", float64(then.UnixMilli())/1000), then.Format(time.RFC3339Nano)
	batch := PingBatch{Pings: []BatchItem{{User: "bob", At: &seconds}, {User: "carol", At: &text}}}
	r := must(c.RecordPingsWithResponse(ctx, "chat", batch))
	check(r.JSON200 != nil && r.JSON200.Recorded == 2, "pings", r.Status(), r.Body)
	for _, user := range []string{"bob", "carol"} {
		r := must(c.GetUserWithResponse(ctx, "chat", user, nil))
		p := r.JSON200
		ok := p != nil && p.Status == Yellow && p.LastSeen != nil && p.LastSeen.Equal(then)
		check(ok, fmt.Sprintf("%s, seen at %s", user, then), r.Status(), r.Body)
	}
}

func lookup(ctx context.Context, c *ClientWithResponses) {
	users := []string{"zoe", "a/b"}
	r := must(c.LookupUsersWithResponse(ctx, "chat", nil, LookupRequest{Users: users}))
	check(r.JSON200 != nil && len(r.JSON200.Users) == 2, "lookup", r.Status(), r.Body)
	zoe := r.JSON200.Users[0]
	ok := zoe.Status == Grey && zoe.LastSeen == nil && zoe.ValidUntil == nil
	check(ok, "lookup of a user never seen", r.Status(), r.Body)
	q := must(c.LookupUsersByQueryWithResponse(ctx, "chat", &LookupUsersByQueryParams{User: users}))
	ok = q.JSON200 != nil && len(q.JSON200.Users) == 2 && q.JSON200.Users[1].Status == Green
	check(ok, "lookup by GET", q.Status(), q.Body)
}

// list reads all pages.
func list(ctx context.Context, c *ClientWithResponses) {
	var found []string
	limit, statuses := 2, []Status{Green, Yellow}
	params := &ListUsersParams{Limit: &limit, Status: &statuses}
	for {
		r := must(c.ListUsersWithResponse(ctx, "chat", params))
		check(r.JSON200 != nil, "list", r.Status(), r.Body)
		for _, p := range r.JSON200.Users {
			found = append(found, p.User)
		}
		if r.JSON200.NextCursor == nil {
			slices.Sort(found)
			ok := slices.Equal(found, []string{"a/b", "alice", "bob", "carol", "ü"})
			check(ok, fmt.Sprintf("listed %q", found), r.Status(), r.Body)
			return
		}
		params = &ListUsersParams{Limit: &limit, Cursor: r.JSON200.NextCursor}
	}
}

// problems reads errors.
func problems(ctx context.Context, c *ClientWithResponses) {
	r := must(c.GetUserWithResponse(ctx, ".hidden", "alice", nil))
	p := r.ApplicationproblemJSONDefault
	ok := p != nil && p.Code == InvalidNamespace && p.Status == http.StatusBadRequest && p.RequestId != ""
	check(ok, "a problem", r.Status(), r.Body)
}
