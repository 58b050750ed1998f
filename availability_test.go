package lastseen

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestParseAvailability(t *testing.T) {
	for _, good := range []Availability{"", Away, Busy, Invisible} {
		a, err := ParseAvailability(string(good))
		require.NoError(t, err)
		require.Equal(t, good, a)
	}
	for _, bad := range []string{"Away", "busy ", "online", "green", "null", "dnd", "\xff", strings.Repeat("x", 1000)} {
		a, err := ParseAvailability(bad)
		require.ErrorContains(t, err, "use away, busy or invisible, or null for none")
		require.Empty(t, a)
		require.True(t, utf8.ValidString(err.Error()), "messages are text")
		require.Less(t, len(err.Error()), 300, "messages stay short")
	}
	require.Equal(t, []Availability{Away, Busy, Invisible}, Availabilities())
}

func TestSaidAt(t *testing.T) {
	const now Instant = 1_700_000_000_000
	for _, c := range []struct {
		said Said
		ends bool // at now
	}{
		{Said{}, false},
		{Said{Availability: Busy}, false},
		{Said{Note: "a note"}, false},
		{Said{Availability: Busy, Until: now + 1}, false},
		{Said{Availability: Busy, Until: MaxInstant}, false},
		{Said{Availability: Busy, Note: "a note", Until: now}, true},
		{Said{Note: "a note", Until: now - 1}, true},
		{Said{Availability: Invisible, Until: MinInstant}, true},
	} {
		want := c.said
		if c.ends {
			want = Said{}
		}
		require.Equal(t, want, c.said.At(now), "%+v", c.said)
		require.Equal(t, c.said, c.said.At(0), "nothing has ended before 1970: %+v", c.said)
	}
	require.Zero(t, Said{Until: now + 1}.At(now), "an end alone says nothing")
}

func TestSaidPublic(t *testing.T) {
	for _, a := range []Availability{"", Away, Busy} {
		s := Said{Availability: a, Note: "a note", Until: 5}
		require.Equal(t, s, s.Public())
		require.Zero(t, s.HiddenUntil(), "it hides nothing")
	}
	for until, end := range map[Instant]Instant{0: MaxInstant, 1: 1, 1_700_000_000_000: 1_700_000_000_000} {
		s := Said{Availability: Invisible, Note: "a note", Until: until}
		require.Zero(t, s.Public(), "others see nothing of it, not even the note")
		require.Equal(t, end, s.HiddenUntil())
	}
}

func TestHiddenTime(t *testing.T) {
	const end, slack, ms Instant = 1_700_000_000_000, 5000, 1
	open, ended := HiddenTime{End: end}, HiddenTime{End: end, Ended: true}
	for _, c := range []struct {
		name    string
		hidden  HiddenTime
		at, now Instant
		hides   bool
	}{
		{"nothing hidden", HiddenTime{}, MinInstant, MinInstant, false},
		{"in it", open, end - 100, end - 100, true},
		{"long before it", open, MinInstant, end - 100, true},
		{"the last millisecond", open, end - ms, end - ms, true},
		{"at the end", open, end, end, false},
		{"after it", open, end + 100, end + 100, false},
		{"late", open, end - ms, end + 1_000_000, true},
		{"very late", open, MinInstant, MaxInstant, true},
		{"a client's clock is ahead", open, end + 100, end - ms, true},
		{"a client's clock is years ahead", open, MaxInstant, end - ms, true},
		{"a client's clock is ahead, after the end", open, MaxInstant, end, false},
		{"the end is far away", open, MinInstant, end - 1_000_000_000, true},
		{"no end", HiddenTime{End: MaxInstant}, end, end, true},
		{"ended by the user: late", ended, end - ms, end + 100, true},
		{"ended by the user: at the end", ended, end, end, false},
		{"ended by the user: late, by a clock slightly behind", ended, end - ms, end - slack, true},
		{"ended by the user: at the end, by a clock slightly behind", ended, end, end - slack, false},
		{"ended by the user in the future: a clock was wrong", ended, end - slack - ms, end - slack - ms, false},
		{"ended by the user years ahead", ended, MinInstant, MinInstant, false},
	} {
		got := c.hidden.Hides(c.at, c.now, time.Duration(slack)*time.Millisecond)
		require.Equal(t, c.hides, got, c.name)
	}
}

func TestDotOf(t *testing.T) {
	said := []Availability{"", Away, Busy, Invisible}
	for _, a := range said {
		for _, b := range []bool{false, true} {
			for _, c := range []bool{false, true} {
				require.Equal(t, GreyDot, DotOf(Grey, a, b, c), "whatever a grey user said")
			}
		}
	}
	for _, s := range []Status{Green, Yellow} {
		own := map[Status]Dot{Green: GreenDot, Yellow: YellowDot}[s]
		for _, c := range []struct {
			said         Availability
			idle, inCall bool
			want         Dot
		}{
			{"", false, false, own},
			{"", true, false, YellowDot},
			{"", false, true, RedDot},
			{"", true, true, RedDot},
			{Away, false, false, YellowDot},
			{Away, true, false, YellowDot},
			{Away, false, true, RedDot},
			{Away, true, true, RedDot},
			{Busy, false, false, RedDot},
			{Busy, true, false, RedDot},
			{Busy, false, true, RedDot},
			{Busy, true, true, RedDot},
		} {
			require.Equal(t, c.want, DotOf(s, c.said, c.idle, c.inCall), "%s, %+v", s, c)
		}
	}
}

// disruptive are characters that a note cannot have, and harmless ones beside them that it can.
var (
	disruptive = []rune{
		0, '\t', '\n', '\r', 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x9f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e,
		0x2066, 0x2067, 0x2068, 0x2069,
	}
	harmless = []rune{
		' ', '~', 0xa0, 0xad, 0x061c, 0x200b, 0x200d, 0x200e, 0x200f, 0x2027, 0x202f, 0x2065, 0x206a, 0xfeff, 0xfffd,
		0x10ffff, '<', '&', '"', 'é', '🙂',
	}
)

func TestCheckNote(t *testing.T) {
	for _, good := range []string{
		"", " ", "in a meeting", "<b>not HTML</b>", "شكرا", "日本語", "👩\u200d👩\u200d👧",
		strings.Repeat("x", MaxNoteLen), strings.Repeat("🙂", MaxNoteLen),
	} {
		require.NoError(t, CheckNote(good), "%q", good)
	}
	for _, r := range harmless {
		require.NoError(t, CheckNote("a"+string(r)+"b"), "%U", r)
	}
	for _, r := range disruptive {
		for _, note := range []string{string(r), "a" + string(r) + "b", "🙂" + string(r)} {
			require.ErrorContains(t, CheckNote(note), fmt.Sprintf("%U", r))
		}
	}
	for note, why := range map[string]string{
		"\xff": "not valid UTF-8", "a\xc3": "not valid UTF-8", "\xed\xa0\x80": "not valid UTF-8",
		strings.Repeat("x", MaxNoteLen+1): "has 141 characters", strings.Repeat("🙂", 2000): "has 2000 characters",
	} {
		err := CheckNote(note)
		require.ErrorContains(t, err, why)
		require.Less(t, len(err.Error()), 300, "messages stay short")
	}
}

func FuzzCheckNote(f *testing.F) {
	for _, r := range append(append([]rune{}, disruptive...), harmless...) {
		f.Add("a" + string(r))
	}
	for _, s := range []string{"", "in a meeting", "\xff", strings.Repeat("x", MaxNoteLen), strings.Repeat("é", 141)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		valid := utf8.ValidString(s) && len([]rune(s)) <= MaxNoteLen
		for _, r := range s {
			valid = valid && !unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) && !overrides(r)
		}
		err := CheckNote(s)
		require.Equal(t, valid, err == nil, "%q: %v", s, err)
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
			require.Less(t, len(err.Error()), 300, "messages stay short")
		}
	})
}

// overrides reports whether a character begins or ends text of another direction, by its name in Unicode: LRE, RLE,
// PDF, LRO, RLO, LRI, RLI, FSI and PDI.
func overrides(r rune) bool {
	return strings.ContainsRune("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
}
