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

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run uses the server at the given URL, whose namespace "chat" is empty.
func run(ctx context.Context, url string) error {
	client, err := NewClientWithResponses(url)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *ClientWithResponses) error{ping, lookup, list, problems} {
		if err := step(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

func ping(ctx context.Context, c *ClientWithResponses) error {
	for _, user := range []string{"alice", "a/b", "ü"} {
		r, err := c.PingUserWithResponse(ctx, "chat", user, nil, PingRequest{})
		if err != nil {
			return err
		}
		p := r.JSON200
		if p == nil || p.User != user || p.Status != Green || p.PingAfterMs == nil || p.LastSeen == nil {
			return fmt.Errorf("ping of %s: %s %s", user, r.Status(), r.Body)
		}
	}
	minimal := "return=minimal"
	r, err := c.PingUserWithResponse(ctx, "chat", "alice", &PingUserParams{Prefer: &minimal}, PingRequest{})
	if err != nil {
		return err
	}
	if r.StatusCode() != http.StatusNoContent || r.Headers204 == nil || r.Headers204.LastseenPingAfterMs <= 0 {
		return fmt.Errorf("ping without a body: %s %+v", r.Status(), r.Headers204)
	}
	return pingEarlier(ctx, c)
}

// pingEarlier records two pings of two minutes ago by the server's clock: one in Unix seconds, one in RFC 3339.
func pingEarlier(ctx context.Context, c *ClientWithResponses) error {
	now, err := c.GetUserWithResponse(ctx, "chat", "alice", nil)
	if err != nil {
		return err
	}
	if now.JSON200 == nil {
		return fmt.Errorf("get: %s %s", now.Status(), now.Body)
	}
	then := now.JSON200.AsOf.Add(-2 * time.Minute)
	seconds, text := fmt.Sprintf("%.3f", float64(then.UnixMilli())/1000), then.Format(time.RFC3339Nano)
	batch := PingBatch{Pings: []BatchItem{{User: "bob", At: &seconds}, {User: "carol", At: &text}}}
	r, err := c.RecordPingsWithResponse(ctx, "chat", batch)
	if err != nil {
		return err
	}
	if r.JSON200 == nil || r.JSON200.Recorded != 2 {
		return fmt.Errorf("pings: %s %s", r.Status(), r.Body)
	}
	for _, user := range []string{"bob", "carol"} {
		r, err := c.GetUserWithResponse(ctx, "chat", user, nil)
		if err != nil {
			return err
		}
		if p := r.JSON200; p == nil || p.Status != Yellow || p.LastSeen == nil || !p.LastSeen.Equal(then) {
			return fmt.Errorf("%s, seen at %s: %s %s", user, then, r.Status(), r.Body)
		}
	}
	return nil
}

func lookup(ctx context.Context, c *ClientWithResponses) error {
	r, err := c.LookupUsersWithResponse(ctx, "chat", nil, LookupRequest{Users: []string{"zoe", "a/b"}})
	if err != nil {
		return err
	}
	if r.JSON200 == nil || len(r.JSON200.Users) != 2 {
		return fmt.Errorf("lookup: %s %s", r.Status(), r.Body)
	}
	if zoe := r.JSON200.Users[0]; zoe.Status != Grey || zoe.LastSeen != nil || zoe.ValidUntil != nil {
		return fmt.Errorf("lookup of a user never seen: %s", r.Body)
	}
	q, err := c.LookupUsersByQueryWithResponse(ctx, "chat", &LookupUsersByQueryParams{User: []string{"zoe", "a/b"}})
	if err != nil {
		return err
	}
	if q.JSON200 == nil || len(q.JSON200.Users) != 2 || q.JSON200.Users[1].Status != Green {
		return fmt.Errorf("lookup by GET: %s %s", q.Status(), q.Body)
	}
	return nil
}

// list reads all pages.
func list(ctx context.Context, c *ClientWithResponses) error {
	var found []string
	limit, statuses := 2, []Status{Green, Yellow}
	params := &ListUsersParams{Limit: &limit, Status: &statuses}
	for {
		r, err := c.ListUsersWithResponse(ctx, "chat", params)
		if err != nil {
			return err
		}
		if r.JSON200 == nil {
			return fmt.Errorf("list: %s %s", r.Status(), r.Body)
		}
		for _, p := range r.JSON200.Users {
			found = append(found, p.User)
		}
		if r.JSON200.NextCursor == nil {
			break
		}
		params = &ListUsersParams{Limit: &limit, Cursor: r.JSON200.NextCursor}
	}
	slices.Sort(found)
	if want := []string{"a/b", "alice", "bob", "carol", "ü"}; !slices.Equal(found, want) {
		return fmt.Errorf("listed %q instead of %q", found, want)
	}
	return nil
}

// problems reads errors.
func problems(ctx context.Context, c *ClientWithResponses) error {
	r, err := c.GetUserWithResponse(ctx, ".hidden", "alice", nil)
	if err != nil {
		return err
	}
	p := r.ApplicationproblemJSONDefault
	if p == nil || p.Code != InvalidNamespace || p.Status != http.StatusBadRequest || p.RequestId == "" {
		return fmt.Errorf("a problem: %s %s", r.Status(), r.Body)
	}
	return nil
}
