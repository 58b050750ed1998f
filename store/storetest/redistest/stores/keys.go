package stores

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Chat is the key of the namespace chat, and others are side keys of it.
const (
	Chat          = "presence:chat"
	HiddenOfChat  = "presence:hidden:{presence:chat}"
	PrivateOfChat = "presence:private:{presence:chat}"
	DevicesOfChat = "presence:devices:{presence:chat}"
	MetasOfChat   = "presence:devicemeta:{presence:chat}" // what apps add to devices
)

// SideKey returns the side key of a shard's key for something.
func SideKey(what, key string) string { return "presence:" + what + ":{" + key + "}" }

// Contents returns every key with its value, byte for byte.
func Contents(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range client.Keys(context.Background(), "*").Val() {
		all[key] = client.Dump(context.Background(), key).Val()
	}
	require.NotEmpty(t, all)
	return all
}

// Window is for how long devices count.
const Window = 10 * time.Minute

// OnDevice returns a ping of a device.
func OnDevice(user, id string, at lastseen.Instant) store.DeviceEvent {
	return store.DeviceEvent{User: user, ID: id, Kind: lastseen.Web, At: at}
}

// ByeOnDevice returns a leave of a device of alice.
func ByeOnDevice(id string, at lastseen.Instant) store.DeviceEvent {
	bye := OnDevice("alice", id, at)
	bye.Gone = true
	return bye
}

// Record records devices in the namespace chat, and returns the state of the last one's user.
func Record(t require.TestingT, s store.Store, batch ...store.DeviceEvent) lastseen.State {
	states, err := s.RecordDevices(context.Background(), kit.Namespace, Window, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states[len(batch)-1]
}

// Devices returns the devices of a user that are live, and those that are gone.
func Devices(t require.TestingT, s store.Store, user string) (live, gone []string) {
	for _, r := range devices.Of(t, s, user).Records {
		if r.Gone {
			gone = append(gone, r.ID)
		} else {
			live = append(live, r.ID)
		}
	}
	return live, gone
}

// Sides returns what the hash of the side keys of the namespace chat has.
func Sides(t testing.TB, client redis.UniversalClient) string {
	t.Helper()
	all, err := client.HGetAll(context.Background(), SideKey("keys", Chat)).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, len(all), 1)
	return all["keys"]
}
