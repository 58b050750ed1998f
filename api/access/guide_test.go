package access

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuide makes a token as docs/access.md says, with a shell and openssl, and it is taken.
func TestGuide(t *testing.T) {
	for _, tool := range []string{"sh", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on PATH: install it to try the guide", tool)
		}
	}
	guide, err := os.ReadFile("../../docs/access.md")
	require.NoError(t, err)
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(guide)
	require.NotNil(t, script)
	output, err := exec.CommandContext(t.Context(), "sh", "-euc", string(script[1])+`printf '%s %s' "$secret" "$token"`).Output()
	require.NoError(t, err)
	secret, token, _ := strings.Cut(string(output), " ")
	g, err := New(Config{Tokens: &Tokens{Secret: []byte(secret), Issuer: "https://app.example.com", Audience: "lastseen"}}, Options{})
	require.NoError(t, err)
	caller, err := g.IdentifyToken(t.Context(), token)
	require.NoError(t, err)
	require.True(t, caller.Speaks("alice"))
	require.True(t, caller.May(Ping, "chat"))
}
