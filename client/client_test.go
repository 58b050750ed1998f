package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestPresence(t *testing.T) {
	eachStore(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		const strange = "a/b?c=d&e%20 ü" // names of users have any bytes
		p, err := c.PingUser(ctx, "chat", strange, client.Ping{})
		require.NoError(t, err)
		require.Equal(t, strange, p.User)
		require.Equal(t, lastseen.Green, p.Status)
		require.Positive(t, p.PingAfterMs)
		require.Equal(t, time.Minute, p.ValidFor())

		n, err := c.RecordPings(ctx, "chat", []client.Event{
			{User: "bob", At: p.AsOf.Add(-90 * time.Second)},
			{User: "carol", Device: &client.Device{ID: "d", Kind: lastseen.Mobile}, Activity: "idle"},
			{User: "dave"},
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		n, err = c.RecordLeaves(ctx, "chat", []client.Event{{User: "dave"}})
		require.NoError(t, err)
		require.Equal(t, 1, n)

		list, err := c.LookupUsers(ctx, "chat", []string{"bob", "erin", "carol", "dave"}, client.Evaluate{})
		require.NoError(t, err)
		require.EqualValues(t, 60_000, list.GreenMs)
		var looks []string
		for _, u := range list.Users {
			require.Equal(t, list.AsOf, u.AsOf)
			looks = append(looks, u.User+" "+string(u.Status)+" "+u.Activity)
		}
		require.Equal(t, []string{"bob yellow ", "erin grey ", "carol green idle", "dave grey "}, looks)
		require.True(t, list.Users[1].LastSeen.IsZero())
		require.True(t, list.Users[3].Left)

		counts, err := c.CountUsers(ctx, "chat", client.List{})
		require.NoError(t, err)
		require.Equal(t, [4]int64{2, 1, 1, 4}, [4]int64{counts.Green, counts.Yellow, counts.Grey, counts.Total})

		p, err = c.RecordLeave(ctx, "chat", strange, client.Leave{})
		require.NoError(t, err)
		require.True(t, p.Left)
		_, err = c.RecordLeave(ctx, "chat", "carol", client.Leave{
			After: time.Minute, Device: &client.Device{ID: "d"},
		})
		require.NoError(t, err)
		p, err = c.GetUser(ctx, "chat", "carol", client.Evaluate{AsOf: p.AsOf.Add(time.Hour)})
		require.NoError(t, err)
		require.Equal(t, lastseen.Grey, p.Status)
		p, err = c.GetUser(ctx, "chat", "bob", client.Evaluate{Green: 2 * time.Hour, Yellow: 3 * time.Hour})
		require.NoError(t, err)
		require.Equal(t, lastseen.Green, p.Status)

		dot, err := c.GetUserDot(ctx, "chat", "bob", 32, client.Evaluate{})
		require.NoError(t, err)
		require.Contains(t, string(dot), `width="32"`)
		require.NoError(t, c.DeleteUser(ctx, "chat", "bob"))
		p, err = c.GetUser(ctx, "chat", "bob", client.Evaluate{})
		require.NoError(t, err)
		require.True(t, p.LastSeen.IsZero())
	})
}

func TestLists(t *testing.T) {
	eachStore(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		now, err := c.PingUser(ctx, "chat", "a", client.Ping{})
		require.NoError(t, err)
		_, err = c.RecordPings(ctx, "chat", []client.Event{
			{User: "b", At: now.LastSeen.Add(-time.Second)},
			{User: "c", At: now.LastSeen.Add(-2 * time.Minute)},
			{User: "d", At: now.LastSeen.Add(-time.Hour)},
			{User: "e", At: now.LastSeen.Add(-2 * time.Hour)},
		})
		require.NoError(t, err)
		list := func(l client.List) (users string) {
			for p, err := range c.Users(ctx, "chat", l) {
				require.NoError(t, err)
				require.False(t, p.AsOf.IsZero())
				users += p.User
			}
			return users
		}
		require.Equal(t, "abcde", list(client.List{}))
		require.Equal(t, "abcde", list(client.List{Limit: 2}))
		require.Equal(t, "bcde", list(client.List{Limit: 2, Offset: 1}))
		require.Equal(t, "edcba", list(client.List{OldestFirst: true, Limit: 3}))
		require.Equal(t, "de", list(client.List{Status: []lastseen.Status{lastseen.Grey}, Limit: 1}))
		require.Equal(t, "bcd", list(client.List{
			From: now.LastSeen.Add(-time.Hour), To: now.LastSeen.Add(-time.Second),
		}))
		page, err := c.ListUsers(ctx, "chat", client.List{Limit: 4})
		require.NoError(t, err)
		require.Len(t, page.Users, 4)
		require.NotEmpty(t, page.NextCursor)
		for _, err := range c.Users(ctx, "chat", client.List{Limit: 2, Cursor: "none"}) {
			require.ErrorContains(t, err, "invalid_cursor")
		}

		_, err = c.PingUser(ctx, "game", "a", client.Ping{})
		require.NoError(t, err)
		var names []string
		for n, err := range c.Namespaces(ctx) {
			require.NoError(t, err)
			require.False(t, n.LastPing.IsZero())
			names = append(names, n.Namespace)
		}
		require.Equal(t, []string{"chat", "game"}, names)
		require.NoError(t, c.DeleteNamespace(ctx, "chat"))
		require.Empty(t, list(client.List{}))
		settings, err := c.GetNamespace(ctx, "chat")
		require.NoError(t, err)
		require.Equal(t, "everyone", settings.Visibility)
		require.EqualValues(t, 300_000, settings.YellowMs)
	})
}

func TestWhatUsersSay(t *testing.T) {
	eachStore(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		phone := client.Device{ID: "phone", Kind: lastseen.Mobile, Meta: json.RawMessage(`{"app":"1.2"}`)}
		_, err := c.PingUser(ctx, "chat", "alice", client.Ping{Device: &phone})
		require.NoError(t, err)
		devices, err := c.ListDevices(ctx, "chat", "alice")
		require.NoError(t, err)
		require.Equal(t, []lastseen.DeviceKind{lastseen.Mobile}, devices.Kinds)
		require.Equal(t, phone, devices.Devices[0].Device)
		require.True(t, devices.Devices[0].Live)
		require.NoError(t, c.CloseConnections(ctx, "chat", "alice"))

		until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		said := client.UserAvailability{User: "bob", Availability: lastseen.Busy, Note: "in a meeting", Until: until}
		stored, err := c.SetAvailability(ctx, "chat", said)
		require.NoError(t, err)
		require.Equal(t, said, stored)
		stored, err = c.GetAvailability(ctx, "chat", "bob")
		require.NoError(t, err)
		require.Equal(t, said, stored)
		_, err = c.PingUser(ctx, "chat", "bob", client.Ping{})
		require.NoError(t, err)
		p, err := c.GetUser(ctx, "chat", "bob", client.Evaluate{})
		require.NoError(t, err)
		require.Equal(t, "in a meeting", p.Note)
		require.Equal(t, until, p.AvailabilityUntil)
		require.NoError(t, c.DeleteAvailability(ctx, "chat", "bob"))
		stored, err = c.GetAvailability(ctx, "chat", "bob")
		require.NoError(t, err)
		require.Equal(t, client.UserAvailability{User: "bob"}, stored)

		contacts := func() (users []string) {
			for p, err := range c.Contacts(ctx, "chat", "alice", client.Contacts{Limit: 1}) {
				require.NoError(t, err)
				users = append(users, p.User)
			}
			return users
		}
		require.NoError(t, c.SetContacts(ctx, "chat", "alice", []string{"bob", "carol"}))
		require.ElementsMatch(t, []string{"bob", "carol"}, contacts())
		require.NoError(t, c.ChangeContacts(ctx, "chat", "alice", []string{"dave"}, []string{"carol"}))
		require.ElementsMatch(t, []string{"bob", "dave"}, contacts())
		page, err := c.ListContacts(ctx, "chat", "alice", client.Contacts{
			Status: []lastseen.Status{lastseen.Green}, InCall: new(bool),
		})
		require.NoError(t, err)
		require.Len(t, page.Users, 1)
		require.NoError(t, c.DeleteContacts(ctx, "chat", "alice"))
		require.Empty(t, contacts())
	})
}

func TestCalls(t *testing.T) {
	eachStore(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		call, err := c.StartCall(ctx, "chat", client.NewCall{
			From: "alice", To: "bob", Device: "laptop", App: json.RawMessage(`{"offer":1}`), Key: "k",
		})
		require.NoError(t, err)
		require.Equal(t, lastseen.Ringing, call.State)
		require.JSONEq(t, `{"offer":1}`, string(call.App))
		again, err := c.StartCall(ctx, "chat", client.NewCall{
			From: "alice", To: "bob", Device: "laptop", App: json.RawMessage(`{"offer":1}`), Key: "k",
		})
		require.NoError(t, err)
		require.Equal(t, call.ID, again.ID)
		calls, err := c.ListCalls(ctx, "chat", "bob", "", 0)
		require.NoError(t, err)
		require.Equal(t, call.ID, calls.Calls[0].ID)

		bob := client.CallAction{User: "bob", Device: "phone"}
		call, err = c.AcceptCall(ctx, "chat", call.ID, bob)
		require.NoError(t, err)
		require.Equal(t, &client.CallActor{User: "bob", Device: "phone"}, call.By)
		calls, err = c.ListCalls(ctx, "chat", "bob", calls.Cursor, 20*time.Second)
		require.NoError(t, err)
		require.Equal(t, lastseen.Active, calls.Calls[0].State)
		_, err = c.KeepCallAlive(ctx, "chat", call.ID, bob)
		require.NoError(t, err)
		_, err = c.RejectCall(ctx, "chat", call.ID, bob)
		var problem *client.Error
		require.ErrorAs(t, err, &problem)
		require.Equal(t, "call_refused", problem.Code)
		require.Equal(t, lastseen.Active, problem.Call.State)
		call, err = c.EndCall(ctx, "chat", call.ID, bob)
		require.NoError(t, err)
		require.Equal(t, lastseen.Ended, call.State)
		call, err = c.GetCall(ctx, "chat", call.ID)
		require.NoError(t, err)
		require.False(t, call.EndedAt.IsZero())
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	ctx, c := connect(t, testserver.Start(t), client.Options{})
	_, err := c.RecordPings(ctx, "chat", []client.Event{{User: "alice"}, {User: ""}, {User: "."}})
	var problem *client.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, http.StatusBadRequest, problem.Status)
	require.Equal(t, "invalid_user", problem.Code)
	require.Equal(t, []int{1, 2}, []int{problem.Items[0].Index, problem.Items[1].Index})
	require.ErrorContains(t, err, problem.RequestID)

	v, err := c.GetVersion(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, v.Go)
	require.NoError(t, c.GetHealth(ctx))
	require.NoError(t, c.GetReadiness(ctx))
	hooks, err := c.ListWebhooks(ctx)
	require.NoError(t, err)
	require.Empty(t, hooks)
	_, err = c.TestWebhook(ctx, "none")
	require.ErrorContains(t, err, "webhook_not_found")
	require.ErrorContains(t, c.EnableWebhook(ctx, "none"), "webhook_not_found")

	for _, url := range []string{"", "127.0.0.1:8080", "ftp://host", "http://", "http://u:p@host", "http://host/?a=b"} {
		_, err := client.New(url, client.Options{})
		require.Error(t, err, url)
	}
	_, err = client.New("http://host", client.Options{Tries: -1})
	require.Error(t, err)
}

// TestTokens: a token is used until the server refuses it.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--config", testserver.WriteConfig(t, testserver.Issuer+
		"jwt-secret-file: "+testserver.WriteFile(t, "secret", []byte(testserver.Secret))+"\n"))
	asked := 0
	ctx, c := connect(t, s, client.Options{Token: func(context.Context) (string, error) {
		switch asked++; asked {
		case 1:
			return "expired", nil
		case 2:
			return testserver.UserToken(t, nil), nil
		}
		return "", errors.New("signed out")
	}})
	for range 3 {
		_, err := c.PingUser(ctx, "mine-1", "alice", client.Ping{})
		require.NoError(t, err)
	}
	require.Equal(t, 2, asked)
	ctx, c = connect(t, s, client.Options{Key: "ls_wrong"})
	_, err := c.GetNamespace(ctx, "chat")
	require.ErrorContains(t, err, "unauthenticated")
}
