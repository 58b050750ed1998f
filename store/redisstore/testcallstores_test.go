package redisstore_test

import (
	"testing"

	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// The names by which the tests of calls know what other rooms share.
const chat = stores.Chat

var (
	start        = stores.StartRedis
	newStore     = stores.New
	newClient    = stores.NewClient
	ping         = stores.Ping
	numbered     = stores.Numbered
	untilSuccess = stores.UntilSuccess
	startReplica = redistest.StartReplica
	nowOf        = kit.Now
)

// countedLog is a log with the name that they know.
type countedLog struct{ *stores.Log }

func (l countedLog) count(part string) int { return l.Count(part) }

func newLoggedStore(t *testing.T, o redisstore.Options) (*redisstore.Store, countedLog) {
	s, log := stores.NewLogged(t, o)
	return s, countedLog{log}
}
