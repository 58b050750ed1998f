package api

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestChangesCursors checks that cursors hold any places, and are bound to the namespace and to changes.
func TestChangesCursors(t *testing.T) {
	for _, places := range [][]store.Place{
		{"1-0:a"}, {""}, {"a", "", "b\x00\n\"c"}, slices.Repeat([]store.Place{"1795212030000-0:5bcf34c91ed02aa6-12"}, 64),
	} {
		cursor := changesCursor("chat", places)
		require.NotContains(t, cursor, "\n")
		got, err := openChangesCursor("chat", cursor)
		require.NoError(t, err)
		require.Equal(t, places, got)
		for _, forged := range forgeries(cursor) {
			_, err := openChangesCursor("chat", forged)
			requireCode(t, codeInvalidCursor, err)
		}
		_, err = openChangesCursor("chat2", cursor)
		requireCode(t, codeInvalidCursor, err)
		_, _, err = parseListCursor("chat", cursor)
		require.Error(t, err, "it is not a cursor of a list")
	}
}

// TestForeignChangesCursors checks that well-sealed content of another form is refused before it takes memory.
func TestForeignChangesCursors(t *testing.T) {
	for _, content := range []string{
		"", "\x00", "\x01", "\x01\x05abc", "\x01\x01ab", "\x02\x01a", "\x41" + strings.Repeat("\x00", 65),
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("x", maxChangesCursor),
	} {
		_, err := openChangesCursor("chat", sealCursor(changesList("chat"), []byte(content)))
		requireCode(t, codeInvalidCursor, err)
	}
	_, err := openChangesCursor("chat", sealCursor("chat", []byte("\x01\x00")))
	requireCode(t, codeInvalidCursor, err)
	_, err = openChangesCursor("chat", sealCursor(changesList("chat"), []byte("\x01\x00")))
	require.NoError(t, err)
}

func requireCode(t *testing.T, want code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, classify(err).code)
}

// FuzzChangesCursor checks that no content makes the server fail, and that what is accepted has one form.
func FuzzChangesCursor(f *testing.F) {
	f.Add([]byte("\x01\x051-0:a"))
	f.Add([]byte("\x02\x00\x01b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		cursor := sealCursor(changesList("chat"), content)
		places, err := openChangesCursor("chat", cursor)
		if err != nil {
			return
		}
		again, err := openChangesCursor("chat", changesCursor("chat", places))
		require.NoError(t, err)
		require.Equal(t, places, again)
		_, err = openChangesCursor("chat", base64.RawURLEncoding.EncodeToString(content))
		require.Error(t, err, "it is not sealed")
	})
}
