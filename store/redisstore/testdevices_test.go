package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// window is for how long devices count in tests.
const window = 10 * time.Minute

func onDevice(user, id string, at lastseen.Instant) store.DeviceSighting {
	return store.DeviceSighting{User: user, ID: id, Kind: lastseen.Web, At: at}
}

func byeOnDevice(user, id string, at lastseen.Instant) store.DeviceSighting {
	bye := onDevice(user, id, at)
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

// recordsKey and metasKey are the companions of a shard's key for devices.
func recordsKey(key string) string { return "presence:devices:{" + key + "}" }
func metasKey(key string) string   { return "presence:devicemeta:{" + key + "}" }

const devicesBit = "chat:devices"
