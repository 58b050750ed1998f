package auth

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseScope(t *testing.T) {
	for _, scope := range Scopes() {
		parsed, err := ParseScope(string(scope))
		require.NoError(t, err)
		require.Equal(t, scope, parsed)
	}
	for _, bad := range []string{"", "Read", "write", "ping read", "*"} {
		_, err := ParseScope(bad)
		require.Error(t, err, bad)
	}
}
