package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScriptLoads: a page of another origin under a strict policy imports lastseen.js without complaints.
func TestScriptLoads(t *testing.T) {
	t.Parallel()
	s := newScripted(t, scriptOptions{})
	b := openBrowser(t, s.pages)
	s.load(t, b, "", "")
	require.Empty(t, s.complaints(b))
}
