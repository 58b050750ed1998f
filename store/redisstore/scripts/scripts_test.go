package scripts

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestMaxAhead: the scripts cannot read the contract.
func TestMaxAhead(t *testing.T) {
	require.Contains(t, text("shared/clock"),
		"\nlocal max_ahead = "+strconv.FormatInt(store.MaxAhead.Milliseconds(), 10)+"\n")
}
