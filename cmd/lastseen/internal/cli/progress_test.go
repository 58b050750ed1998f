package cli

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProgress: how much, how fast and the time left, unless the size is not known or the output is no terminal.
func TestProgress(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(name, make([]byte, 400), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	now := noon
	show := func(file io.Reader) string {
		var out strings.Builder
		bytes := newCounter(file)
		p := NewProgress(&out)
		p.Show(1)
		require.Empty(t, out.String(), "it is no terminal")
		p = &Progress{out: &out, bytes: bytes, began: now, now: func() time.Time { return now }}
		_, err := io.CopyN(io.Discard, bytes, 100)
		require.NoError(t, err)
		now = now.Add(10 * time.Second)
		p.Show(50)
		now = now.Add(time.Millisecond)
		p.Show(51) // too soon
		p.Clear()
		return out.String()
	}
	require.Equal(t, "\r\x1b[K 25 %, 50 users, 5 a second, 30s left\r\x1b[K", show(file))
	require.Equal(t, "\r\x1b[K50 users, 5 a second\r\x1b[K", show(strings.NewReader(strings.Repeat("x", 400))))
}
