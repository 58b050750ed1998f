package filestore

import (
	"testing"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

func TestSignals(t *testing.T) {
	t.Parallel()
	storetest.RunSignals(t, func(t testing.TB) (one, two store.Store) {
		s := open(t, Options{Path: newPath(t)})
		return s, s
	})
}
