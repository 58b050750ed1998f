package stores

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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
