package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
	"github.com/lastseen/lastseen/internal/testserver"
)

// server is the URL of a server, and key an API key if it requires one.
func server() string { return os.Getenv("LASTSEEN_SERVER") }
func key() string    { return os.Getenv("LASTSEEN_API_KEY") }

func Example() {
	ctx := context.Background()
	presence, err := client.New(server(), client.Options{Key: key()})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := presence.PingUser(ctx, "chat", "alice", client.Ping{}); err != nil {
		log.Fatal(err)
	}
	list, err := presence.LookupUsers(ctx, "chat", []string{"alice", "bob"}, client.Evaluate{})
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range list.Users {
		fmt.Println(user.User, user.Status)
	}
	// alice green
	// bob grey
}

func ExampleClient_Users() {
	presence, _ := client.New(server(), client.Options{Key: key()})
	online := client.List{Status: []lastseen.Status{lastseen.Green, lastseen.Yellow}}
	for user, err := range presence.Users(context.Background(), "chat", online) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.User)
	}
	// alice
}

func ExampleError() {
	presence, _ := client.New(server(), client.Options{Key: key()})
	_, err := presence.GetUser(context.Background(), "chat", ".", client.Evaluate{})
	var problem *client.Error
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Code)
	}
	// 400 invalid_user
}

func ExampleClient_StartPinger() {
	presence, _ := client.New(server(), client.Options{Key: key()})
	pinged := make(chan error, 1)
	pinger := presence.StartPinger("chat", "alice", client.PingerOptions{
		Device: &client.Device{ID: "4f2c", Kind: lastseen.Desktop},
		OnPing: func(_ client.Presence, err error) {
			select {
			case pinged <- err:
			default:
			}
		},
	})
	fmt.Println("online:", <-pinged == nil)
	fmt.Println("left:", pinger.Stop(context.Background()) == nil)
	// online: true
	// left: true
}

func ExampleClient_Cache() {
	presence, _ := client.New(server(), client.Options{Key: key()})
	avatars := presence.Cache("chat", client.CacheOptions{})
	for range 3 { // pages with the same users: one request
		users, err := avatars.Lookup(context.Background(), "alice", "bob")
		if err != nil {
			log.Fatal(err) // unknown, not offline
		}
		fmt.Println(users[0].Status, users[1].Status)
	}
	// green grey
	// green grey
	// green grey
}

func ExampleClient_FollowChanges() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	presence, _ := client.New(server(), client.Options{Key: key()})
	var roster client.Roster
	for changes, err := range presence.FollowChanges(ctx, "chat", client.Follow{}) {
		roster.Apply(changes, err)
		if users, known := roster.All(); known {
			for _, user := range users {
				fmt.Println(user.User, user.Status)
			}
			break // to go on, leave this out
		}
	}
	// alice green
}

// TestExamples: each example prints what its last lines say.
func TestExamples(t *testing.T) {
	s := testserver.Start(t)
	t.Setenv("LASTSEEN_SERVER", s.URL)
	t.Setenv("LASTSEEN_API_KEY", "")
	for _, example := range []struct {
		run  func()
		want string
	}{
		{Example, "alice green\nbob grey\n"},
		{ExampleClient_Users, "alice\n"},
		{ExampleClient_Cache, "green grey\ngreen grey\ngreen grey\n"},
		{ExampleClient_FollowChanges, "alice green\n"},
		{ExampleError, "400 invalid_user\n"},
		{ExampleClient_StartPinger, "online: true\nleft: true\n"},
	} {
		require.Equal(t, example.want, printed(t, example.run))
	}
}

// printed returns what a function prints.
func printed(t *testing.T, run func()) string {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = write
	run()
	os.Stdout = stdout
	require.NoError(t, write.Close())
	text, err := io.ReadAll(read)
	require.NoError(t, err)
	return string(text)
}
