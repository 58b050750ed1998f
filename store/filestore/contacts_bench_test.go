package filestore

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// contactIDs returns n IDs of 32 bytes, in bytewise order.
func contactIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("user-%027d", i)
	}
	return ids
}

// BenchmarkContactsSize reports what 50 contacts take in memory and in the file, with IDs of 32 bytes.
func BenchmarkContactsSize(b *testing.B) {
	const owners = 20_000
	ids := contactIDs(owners)
	for b.Loop() {
		s := open(b, Options{Path: newPath(b), Sync: time.Hour})
		before := heapInUse()
		require.NoError(b, s.writer.do(context.Background(), write{durable: true, op: opFunc(func(t *transaction) {
			require.NoError(b, t.ensure("chat"))
			for i, owner := range ids {
				first := i % (owners - 50)
				kept := ownedContacts{newContactList(ids[first : first+50]), base}
				t.setContacts(userKey{"chat", owner}, ownedContacts{}, kept)
			}
		})}))
		b.ReportMetric(float64(heapInUse()-before)/owners, "B-memory/owner")
		s.writer.log.need(version3)
		require.NoError(b, compactNow(s))
		info, err := os.Stat(s.Path())
		require.NoError(b, err)
		b.ReportMetric(float64(info.Size())/owners, "B-file/owner")
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkAreContacts asks whether one user is a contact of 1,000 others, who have 50 contacts each.
func BenchmarkAreContacts(b *testing.B) {
	s := open(b, Options{Path: newPath(b), Sync: time.Hour})
	ids := contactIDs(10_000)
	for _, owner := range ids {
		s.mu.Lock()
		s.index.add("chat")
		s.index.setContacts(userKey{"chat", owner}, ownedContacts{newContactList(ids[100:150]), base})
		s.mu.Unlock()
	}
	pairs := make([]store.ContactPair, 1000)
	for i := range pairs {
		pairs[i] = store.ContactPair{Owner: ids[i*7], Contact: ids[110+i%80]}
	}
	for b.Loop() {
		_, err := s.AreContacts(context.Background(), "chat", pairs)
		require.NoError(b, err)
	}
}
