package store

import (
	"fmt"
	"strings"
)

// MismatchError is an [ErrMismatch] that names the settings to change.
type MismatchError struct {
	Namespace string
	Settings  []string // names of settings, as in redis-shards; none if no setting helps
	Detail    string   // what is stored and what this server expects
}

// Error describes the mismatch for the log.
func (e *MismatchError) Error() string {
	text := fmt.Sprintf("%v: namespace %q %s", ErrMismatch, e.Namespace, e.Detail)
	if len(e.Settings) > 0 {
		text += "; see " + strings.Join(e.Settings, ", ")
	}
	return text
}

// Is reports whether the target is [ErrMismatch].
func (*MismatchError) Is(target error) bool { return target == ErrMismatch }
