package observe

import (
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

// InProgress returns s with begin called before, and end after, each call that reads or writes for a request. Calls of
// the service itself, and those that do next to nothing, do not count.
func InProgress(s store.Store, begin, end func()) store.Store {
	return &observed{s, &inProgress{begin, end, []string{
		"ping", "leave", "lookup", "read_details", "set_availability", "read_availability", "list", "count",
		"record_devices", "read_devices", "set_contacts", "change_contacts", "list_contacts", "are_contacts",
		"read_calls",
	}}}
}

type inProgress struct {
	begins, ends func()
	counted      []string // operations
}

func (p *inProgress) begin(operation string) time.Duration {
	if slices.Contains(p.counted, operation) {
		p.begins()
	}
	return 0
}

func (p *inProgress) done(operation string, _ time.Duration, _ error) {
	if slices.Contains(p.counted, operation) {
		p.ends()
	}
}
