package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

var (
	inMeeting = lastseen.Said{Availability: lastseen.Busy, Note: "in a meeting"}
	invisible = lastseen.Said{Availability: lastseen.Invisible, Note: "not here"}
)

// say records what a user of the namespace chat says now.
func say(t rapid.TB, s store.Store, user string, said lastseen.Said) lastseen.State {
	t.Helper()
	return sayAt(t, s, user, said, nowOf(t, s))
}

func sayAt(t rapid.TB, s store.Store, user string, said lastseen.Said, at lastseen.Instant) lastseen.State {
	t.Helper()
	state, err := s.SetAvailability(context.Background(), "chat", user, said, at)
	require.NoError(t, err)
	return state
}

func nowOf(t rapid.TB, s store.Store) lastseen.Instant {
	t.Helper()
	now, err := s.Now(context.Background())
	require.NoError(t, err)
	return now
}

// namespacesOf returns all namespaces.
func namespacesOf(t *testing.T, s store.Store) []store.NamespaceInfo {
	t.Helper()
	infos, err := s.Namespaces(context.Background(), "", 10)
	require.NoError(t, err)
	return infos
}

// saying returns what a user of the namespace chat says now.
func saying(t *testing.T, s store.Store, user string) lastseen.Said {
	t.Helper()
	now := nowOf(t, s)
	said, err := s.ReadAvailability(context.Background(), "chat", user, now)
	require.NoError(t, err)
	return said.At(now)
}

// described returns what others see of a user of the namespace chat besides the state.
func described(t *testing.T, s store.Store, user string) store.Details {
	t.Helper()
	_, details, err := s.Describe(context.Background(), "chat", []string{user})
	require.NoError(t, err)
	return details[user]
}

// pingAt pings a user of the namespace chat.
func pingAt(t rapid.TB, s store.Store, user string, at lastseen.Instant) lastseen.State {
	t.Helper()
	states, err := s.Ping(context.Background(), "chat", sightingsAt(at, user))
	require.NoError(t, err)
	return states[0]
}

// leaveAt has users of the namespace chat leave.
func leaveAt(t rapid.TB, s store.Store, at lastseen.Instant, users ...string) []lastseen.State {
	t.Helper()
	states, err := s.Leave(context.Background(), "chat", sightingsAt(at, users...))
	require.NoError(t, err)
	return states
}

func errorOf[T any](_ T, err error) error { return err }

// window is for how long devices count in tests.
const window = 10 * time.Minute

func onDevice(user, id string, at lastseen.Instant) store.DeviceSighting {
	return store.DeviceSighting{User: user, ID: id, Kind: lastseen.Web, At: at}
}

func byeOnDevice(id string, at lastseen.Instant) store.DeviceSighting {
	bye := onDevice("alice", id, at)
	bye.Gone = true
	return bye
}

// record records devices in the namespace chat, and returns the state of the last one's user.
func record(t rapid.TB, s store.Store, batch ...store.DeviceSighting) lastseen.State {
	t.Helper()
	states, err := s.RecordDevices(context.Background(), "chat", window, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states[len(batch)-1]
}

// devicesOf returns the devices of a user that are live, and those that are gone.
func devicesOf(t *testing.T, s store.Store, user string) (live, gone []string) {
	t.Helper()
	devices, err := s.ReadDevices(context.Background(), "chat", user)
	require.NoError(t, err)
	for _, r := range devices.Records {
		if r.Gone {
			gone = append(gone, r.ID)
		} else {
			live = append(live, r.ID)
		}
	}
	return live, gone
}

// sidesKey is the hash of a shard's side keys, and sidesOf returns what that of chat has.
func sidesKey(key string) string { return "presence:keys:{" + key + "}" }

func sidesOf(t *testing.T, client redis.UniversalClient) string {
	t.Helper()
	all, err := client.HGetAll(context.Background(), sidesKey(chat)).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, len(all), 1)
	return all["keys"]
}

// recordsKey is the side key of a key for devices.
func recordsKey(key string) string { return "presence:devices:{" + key + "}" }

// metasKey is the side key of the key of the namespace chat for what apps add to devices.
const metasKey = "presence:devicemeta:{presence:chat}"
