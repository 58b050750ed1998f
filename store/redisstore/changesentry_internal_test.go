package redisstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func entryOf(text string) any { return []any{"1700000000000-3", []any{"e", text}} }

// TestReadEntry: entries with and without details. Users may look like the values before them. Details that another
// program wrote are none.
func TestReadEntry(t *testing.T) {
	const at = " 1600000000000 "
	busy := store.Details{Said: lastseen.Said{Availability: lastseen.Busy, Note: "8 17 x", Until: 9}, IdleSince: 7}
	note := store.Details{Said: lastseen.Said{Note: "z"}}
	for _, test := range []struct {
		text, user string
		was, is    store.Details
	}{
		{text: "12 11 3" + at + "alice", user: "alice"},
		{text: "12  3" + at + "1 2 b", user: "1 2 b"},
		{text: "12 11 67" + at + "0 15 7 busy 9 8 17 xalice", user: "alice", is: busy},
		{text: "12  67" + at + "15 0 7 busy 9 8 17 x0 15 bob", user: "0 15 bob", was: busy},
		{text: "12 11 67" + at + "7 15 0 - 0 z7 busy 9 8 17 xé", user: "é", was: note, is: busy},
		{text: "12 11 67" + at + "5 0 weirdalice", user: "alice"},
		{text: "12 11 67" + at + "9 0 7 gone 0 carol", user: "carol"},
		{text: "12 11 67" + at + "0 10 7 busy 9 \x01dora", user: "dora"},
		{text: "12 11 67" + at + "0 1100 0 - 0 " + strings.Repeat("x", 1094) + "frank", user: "frank"},
	} {
		c, previous, own, ok := readEntry(entryOf(test.text))
		require.True(t, ok, test.text)
		require.Equal(t, "11", previous, test.text)
		require.Equal(t, place{"1700000000000-3", "12"}, own, test.text)
		state := lastseen.State{At: 1600000000000}
		require.Equal(t, store.Change{
			User: test.user, Published: store.Published{State: state, Status: lastseen.Green, Details: test.is},
			WasStatus: lastseen.Grey, Was: test.was, Recorded: 1700000000000,
		}, c, test.text)
	}
	for _, text := range []string{
		"12 11 67" + at + "0 17 7 busy 9eve", "12 11 67" + at + "0 -1 eve",
		"12 11 67" + at + "1 99999999999999999999 eve",
		"12 11 67" + at + "eve", "12 11 67" + at + "65535 65535 eve", "12 11 131" + at + "0 1 eve",
		"12 11 104" + at + "0 1 eve", "12 11 40" + at + "eve", "12 11 -3" + at + "eve", "x  3" + at + "eve",
		"12 11 3 eve",
	} {
		_, _, _, ok := readEntry(entryOf(text))
		require.False(t, ok, text)
	}
}

func FuzzReadEntry(f *testing.F) {
	f.Add("12 11 3 1600000000000 alice")
	f.Add("12 11 67 1600000000000 0 15 7 busy 9 8 17 xalice")
	f.Fuzz(func(_ *testing.T, text string) { readEntry(entryOf(text)) })
}
