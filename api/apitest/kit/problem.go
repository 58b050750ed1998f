package kit

import (
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
)

// RequireProblem checks that an error is one that callers may see: a client error with text of bounded length.
func RequireProblem(t *testing.T, err error) *problem.Error {
	t.Helper()
	var refusal *problem.Error
	require.ErrorAs(t, err, &refusal)
	require.Less(t, refusal.Code.Type().Status, http.StatusInternalServerError, refusal.Error())
	require.True(t, utf8.ValidString(refusal.Detail), refusal.Detail)
	require.Less(t, len(refusal.Detail), 1<<10, refusal.Detail)
	return refusal
}
