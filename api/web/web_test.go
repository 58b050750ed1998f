package web

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesAreUnpackedOnce checks that a client without compression costs no more than others.
func TestPagesAreUnpackedOnce(t *testing.T) {
	load := New(nil)["/docs/swagger-ui-bundle.js"]
	first, err := load()
	require.NoError(t, err)
	second, err := load()
	require.NoError(t, err)
	require.Same(t, &first.plain[0], &second.plain[0])
	require.Greater(t, len(first.plain), len(first.gzipped))
}
