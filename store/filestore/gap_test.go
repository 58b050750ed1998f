package filestore

import (
	"testing"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

func TestGaps(t *testing.T) {
	storetest.Gaps(t, func(gap func(string, time.Duration)) store.Store {
		return open(t, Options{Path: newPath(t), Sync: time.Second, Gap: gap})
	})
}
