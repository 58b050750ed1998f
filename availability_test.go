package lastseen

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestParse takes each of the words, and names them to callers who have others.
func TestParse(t *testing.T) {
	requireParses(t, ParseAvailability, append(Availabilities(), ""), "use away, busy or invisible, or null for none")
	requireParses(t, ParseDeviceKind, append(DeviceKinds(), ""), "is unknown: use web, mobile, desktop, service or other")
	requireParses(t, ParseStatus, Statuses(), "green, yellow or grey")
	require.Equal(t, []Availability{Away, Busy, Invisible}, Availabilities())
}

func requireParses[T ~string](t *testing.T, parse func(string) (T, error), words []T, hint string) {
	t.Helper()
	for _, word := range words {
		got, err := parse(string(word))
		require.NoError(t, err)
		require.Equal(t, word, got)
		if word != "" {
			require.Equal(t, strings.ToLower(string(word)), string(word))
			_, err = parse(strings.ToUpper(string(word)))
			require.ErrorContains(t, err, hint)
			require.ErrorContains(t, err, strconv.Quote(strings.ToUpper(string(word))))
		}
	}
	long := strings.Repeat("x", 1000)
	for _, bad := range []string{"busy ", "grey ", "gray", "online", "hold", "null", "dnd", "\xff", long} {
		got, err := parse(bad)
		require.ErrorContains(t, err, hint, bad)
		require.Empty(t, got)
		requireShortText(t, err)
	}
}

func TestAvailabilityAt(t *testing.T) {
	const now Instant = 1_700_000_000_000
	for _, c := range []struct {
		availability AvailabilityState
		ends         bool // at now
	}{
		{AvailabilityState{}, false},
		{AvailabilityState{Availability: Busy}, false},
		{AvailabilityState{Note: "a note"}, false},
		{AvailabilityState{Availability: Busy, Until: now + 1}, false},
		{AvailabilityState{Availability: Busy, Until: MaxInstant}, false},
		{AvailabilityState{Availability: Busy, Note: "a note", Until: now}, true},
		{AvailabilityState{Note: "a note", Until: now - 1}, true},
		{AvailabilityState{Availability: Invisible, Until: MinInstant}, true},
	} {
		want := c.availability
		if c.ends {
			want = AvailabilityState{}
		}
		require.Equal(t, want, c.availability.At(now), "%+v", c.availability)
		require.Equal(t, c.availability, c.availability.At(0), "nothing has ended before 1970: %+v", c.availability)
	}
	require.Zero(t, AvailabilityState{Until: now + 1}.At(now), "an end alone is no availability")
}

func TestAvailabilityPublic(t *testing.T) {
	for _, a := range []Availability{"", Away, Busy} {
		s := AvailabilityState{Availability: a, Note: "a note", Until: 5}
		require.Equal(t, s, s.Public())
		require.Zero(t, s.HiddenUntil(), "it hides nothing")
	}
	for until, end := range map[Instant]Instant{0: MaxInstant, 1: 1, 1_700_000_000_000: 1_700_000_000_000} {
		s := AvailabilityState{Availability: Invisible, Note: "a note", Until: until}
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
	all := []Availability{"", Away, Busy, Invisible}
	for _, a := range all {
		for _, b := range []bool{false, true} {
			for _, c := range []bool{false, true} {
				require.Equal(t, GreyDot, DotOf(Grey, a, b, c), "whatever the availability of a grey user is")
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

// FuzzCheckNote begins with the characters that a note cannot have, and with harmless ones beside them.
func FuzzCheckNote(f *testing.F) {
	disruptive := "\x00\t\n\r\x1b\x1f\x7f\u0080\u0085\u009f\u2028\u2029" +
		"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	harmless := " ~\u00a0\u00ad\u061c\u200b\u200d\u200e\u200f\u2027\u202f\u2065\u206a\ufeff\ufffd\U0010ffff<&\"é🙂"
	for _, r := range disruptive + harmless {
		f.Add("a" + string(r) + "b")
		f.Add(string(r))
	}
	for _, s := range []string{
		"", "in a meeting", "<b>not HTML</b>", "شكرا", "日本語", "👩\u200d👩\u200d👧", "\xff",
		"a\xc3", "\xed\xa0\x80",
		strings.Repeat("x", MaxNoteLen), strings.Repeat("🙂", MaxNoteLen), strings.Repeat("é", MaxNoteLen+1),
		strings.Repeat("🙂", 2000),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := ""
		switch at, n := strings.IndexFunc(s, disrupts), utf8.RuneCountInString(s); {
		case !utf8.ValidString(s):
			want = "not valid UTF-8"
		case n > MaxNoteLen:
			want = fmt.Sprintf("has %d characters", n)
		case at >= 0:
			r, _ := utf8.DecodeRuneInString(s[at:])
			want = fmt.Sprintf("%U", r)
		}
		err := CheckNote(s)
		require.Equal(t, want == "", err == nil, "%q: %v", s, err)
		if err != nil {
			require.ErrorContains(t, err, want)
		}
		requireShortText(t, err)
	})
}
