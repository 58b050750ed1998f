package subscription

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestCursors checks that cursors hold any positions, and are bound to the namespace and to changes.
func TestCursors(t *testing.T) {
	testenv.SkipWithRace(t, "nothing runs at the same time")
	for _, positions := range [][]store.Position{
		{"1-0:a"}, {""}, {"a", "", "b\x00\n\"c"}, slices.Repeat([]store.Position{"1795212030000-0:5bcf34c91ed02aa6-12"}, 65),
	} {
		cursor := Cursor("chat", positions)
		require.NotContains(t, cursor, "\n")
		got, err := OpenCursor("chat", cursor)
		require.NoError(t, err)
		require.Equal(t, positions, got)
		for _, forged := range kit.Forgeries(cursor) {
			_, err := OpenCursor("chat", forged)
			require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
		}
		_, err = OpenCursor("chat2", cursor)
		require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
		_, err = request.OpenCursor("chat", cursor)
		require.Error(t, err, "it is not a cursor of a list")
	}
}

// TestForeignCursors checks that well-sealed content of another form is refused before it takes memory.
func TestForeignCursors(t *testing.T) {
	for _, content := range []string{
		"", "\x00", "\x01", "\x01\x05abc", "\x01\x01ab", "\x02\x01a", "\x42" + strings.Repeat("\x00", 66),
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("x", maxCursor),
	} {
		_, err := OpenCursor("chat", request.SealCursor(cursorName("chat"), []byte(content)))
		require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
	}
	_, err := OpenCursor("chat", request.SealCursor("chat", []byte("\x01\x00")))
	require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
	_, err = OpenCursor("chat", request.SealCursor(cursorName("chat"), []byte("\x01\x00")))
	require.NoError(t, err)
}

// FuzzCursor checks that no content makes the server fail, and that what is accepted has one form.
func FuzzCursor(f *testing.F) {
	f.Add([]byte("\x01\x051-0:a"))
	f.Add([]byte("\x02\x00\x01b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		cursor := request.SealCursor(cursorName("chat"), content)
		positions, err := OpenCursor("chat", cursor)
		if err != nil {
			return
		}
		again, err := OpenCursor("chat", Cursor("chat", positions))
		require.NoError(t, err)
		require.Equal(t, positions, again)
		_, err = OpenCursor("chat", base64.RawURLEncoding.EncodeToString(content))
		require.Error(t, err, "it is not sealed")
	})
}
