package observe

import (
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

// InProgress returns s with begin called before, and end after, each call that reads or writes for a request. Calls of
// the service itself, and those that do next to nothing, do not count.
func InProgress(s store.Store, begin, end func()) store.Store {
	return &observed{s, &inProgress{begin, end, []operation{
		opPing, opLeave, opLookup, opReadDetails, opSetAvailability, opReadAvailability, opList, opCount,
		opRecordDevices, opReadDevices, opSetContacts, opChangeContacts, opListContacts, opAreContacts, opReadCalls,
	}}}
}

type inProgress struct {
	begins, ends func()
	counted      []operation
}

func (p *inProgress) begin(o operation) time.Duration {
	if slices.Contains(p.counted, o) {
		p.begins()
	}
	return 0
}

func (p *inProgress) done(o operation, _ time.Duration, _ error) {
	if slices.Contains(p.counted, o) {
		p.ends()
	}
}
