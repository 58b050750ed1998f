package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func presence(user string, status lastseen.Status, age time.Duration) client.Presence {
	return client.Presence{User: user, Status: status, LastSeen: noon.Add(-age)}
}

// after returns a screen after some messages; what is received is taken at a tick.
func after(messages ...any) screen {
	s := screen{namespace: "chat"}
	for _, m := range messages {
		s.take = func() (received, bool) { return received{}, false }
		msg := m
		if r, ok := m.(received); ok {
			s.take, msg = func() (received, bool) { return r, true }, tick(noon)
		}
		model, _ := s.Update(msg)
		s = model.(screen) //nolint:forcetypeassert // it stays one
	}
	return s
}

// lines returns the lines of a screen, without colours.
func (s screen) lines() []string {
	lines := strings.Split(ansi.Strip(s.View().Content), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// TestScreen: ages are those of the server's clock, and nothing is wider than the terminal.
func TestScreen(t *testing.T) {
	t.Parallel()
	all := received{complete: true, asOf: noon, users: []client.Presence{
		presence("bob \x1b[31m", lastseen.Green, time.Hour),
		presence("carol", lastseen.Yellow, 90*time.Second),
		presence("alice", lastseen.Grey, 25*time.Hour),
		presence("dora", "surprising", time.Second),
	}, count: map[lastseen.Status]int{lastseen.Green: 1, lastseen.Yellow: 2}}
	all.users[0].Note = "back\x07"
	require.Equal(t, []string{
		"chat   green 1   yellow 2   grey 0   as of 12:00:00",
		"",
		`"bob \x1b[31m"  ● green              "back\a"`,
		"carol           ● yellow  1m ago",
		"alice           ● grey    1d ago",
		"dora            ● surprising  1s ago",
		"", "",
		"1–4 of 4   q quit   ↑ ↓ PgUp PgDn",
	}, after(tea.WindowSizeMsg{Width: 60, Height: 9}, all).lines())
	narrow := after(tea.WindowSizeMsg{Width: 20, Height: 9}, all).lines()
	require.Equal(t, `"bob \x1b…  ● green…`, narrow[2])
	for _, line := range narrow {
		require.LessOrEqual(t, ansi.StringWidth(line), 20)
	}
}

// TestScreenSaysWhatIsKnown: a screen that has not everybody yet, or is interrupted, says so, and ages stand still. The
// time up to which it is complete does not grow by itself.
func TestScreenSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	size, later := tea.WindowSizeMsg{Width: 90, Height: 9}, tick(noon.Add(time.Hour))
	r := received{asOf: noon, users: []client.Presence{presence("alice", lastseen.Yellow, time.Second)}}
	require.Contains(t, after(size, r).lines()[0], "reading")
	r.complete = true
	r.err = errors.New("lastseen: the server\nended")
	lines := after(size, r, later).lines()
	require.Contains(t, lines[0], `interrupted: "the server\nended"`)
	require.Contains(t, lines[2], "1s ago")
	r.err = nil
	lines = after(size, r, later).lines()
	require.Contains(t, lines[0], "as of 12:00:00")
	require.Contains(t, lines[2], "1h ago")
}

// TestScreenMoves: keys move the table, within its ends, also when it shrinks or the terminal does.
func TestScreenMoves(t *testing.T) {
	t.Parallel()
	r := received{complete: true, asOf: noon}
	for n := range 20 {
		r.users = append(r.users, presence(fmt.Sprintf("user-%02d", n), lastseen.Green, 0))
	}
	key := func(code rune) tea.Msg { return tea.KeyPressMsg{Code: code} }
	for _, c := range []struct {
		messages []any
		want     string
	}{
		{nil, "1–6 of 20"},
		{[]any{key(tea.KeyDown)}, "2–7 of 20"},
		{[]any{key(tea.KeyUp)}, "1–6 of 20"},
		{[]any{key(tea.KeyPgDown), key(tea.KeyUp)}, "6–11 of 20"},
		{[]any{key(tea.KeyEnd), key(tea.KeyPgDown)}, "15–20 of 20"},
		{[]any{key(tea.KeyEnd), key(tea.KeyPgUp)}, "9–14 of 20"},
		{[]any{key(tea.KeyEnd), key(tea.KeyHome)}, "1–6 of 20"},
		{[]any{key(tea.KeyEnd), received{users: r.users[:8]}}, "3–8 of 8"},
		{[]any{key(tea.KeyEnd), tea.WindowSizeMsg{Width: 60, Height: 30}}, "1–20 of 20"},
		{[]any{received{}}, "0–0 of 0"},
		{[]any{tea.WindowSizeMsg{Width: 60, Height: 2}}, "0–0 of 20"},
	} {
		lines := after(append([]any{tea.WindowSizeMsg{Width: 60, Height: 10}, r}, c.messages...)...).lines()
		require.Contains(t, lines[len(lines)-1], c.want+" ", "%v", c.messages)
	}
	for _, quit := range []tea.KeyPressMsg{{Code: 'q'}, {Code: tea.KeyEscape}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := screen{}.Update(quit)
		require.NotNil(t, cmd, quit)
		require.Equal(t, tea.QuitMsg{}, cmd())
	}
}

// TestLines: a line for each change, and where what was before is to be forgotten. Interruptions go elsewhere.
func TestLines(t *testing.T) {
	t.Parallel()
	all := func(yield func(client.Changes, error) bool) {
		alice := presence("al ice", lastseen.Green, 0)
		alice.Left, alice.Activity, alice.InCall, alice.Availability = true, "idle", true, lastseen.Busy
		_ = yield(client.Changes{AsOf: noon, Reset: true, Users: []client.Presence{alice}}, nil) &&
			yield(client.Changes{}, errors.New("lastseen: broken")) &&
			yield(client.Changes{AsOf: noon, Users: []client.Presence{presence("bob", lastseen.Grey, 0)}}, nil)
	}
	for json, want := range map[bool]string{
		false: "2026-11-29T12:00:00Z begins\n" +
			"2026-11-29T12:00:00Z \"al ice\" green (left, idle, in a call, busy)\n2026-11-29T12:00:00Z bob grey\n",
		true: `{"reset":true}` + "\n" + `{"user":"al ice","status":"green","last_seen":"2026-11-29T12:00:00Z",` +
			`"left":true,"activity":"idle","availability":"busy","in_call":true}` + "\n" +
			`{"user":"bob","status":"grey","last_seen":"2026-11-29T12:00:00Z","left":false}` + "\n",
	} {
		var out, log strings.Builder
		cmd := watchCmd{inNamespace: inNamespace{output: output{JSON: json}}}
		require.NoError(t, cmd.lines(t.Context(), Streams{&out, &log}, iter.Seq2[client.Changes, error](all)))
		require.Equal(t, want, out.String())
		require.Equal(t, "lastseen: interrupted: broken\n", log.String())
	}
}

// TestFollowed: who is green comes first, and who was deleted is left out. What was taken is not taken again before
// something changes.
func TestFollowed(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var f followed
	var taken []string
	take := func() {
		r, changed := f.take()
		var names []string
		for _, p := range r.users {
			names = append(names, p.User)
		}
		taken = append(taken, fmt.Sprint(changed, names, r.complete, r.count[lastseen.Yellow], r.err))
	}
	err := f.follow(func(yield func(client.Changes, error) bool) {
		all := []client.Presence{
			presence("a", lastseen.Grey, 0), presence("b", lastseen.Yellow, 0), {User: "gone", Status: lastseen.Grey},
		}
		_ = yield(client.Changes{AsOf: noon, Reset: true, More: true, Users: all}, nil)
		take()
		_ = yield(client.Changes{AsOf: noon, Users: []client.Presence{presence("c", lastseen.Green, 0)}}, nil)
		take()
		take()
		_ = yield(client.Changes{}, broken)
		take()
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{
		"true [b a] false 1 <nil>", "true [c b a] true 1 <nil>", "false [] false 0 <nil>", "true [c b a] true 1 broken",
	}, taken)
}

// TestTable: pages of a long list are printed as they come. Colours are for terminals.
func TestTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	users := output{}.userTable(Streams{Out: &out})
	for range pageRows {
		require.NoError(t, users.user(presence("alice", lastseen.Green, 0)))
	}
	require.Equal(t, 1+pageRows, strings.Count(out.String(), "\n"))
	require.NoError(t, users.user(presence("b", lastseen.Grey, -time.Hour)))
	require.NoError(t, users.end())
	require.True(t, strings.HasSuffix(out.String(), "alice  ● green  0s ago\nb  ● grey  0s ago\n"))
	require.NotContains(t, out.String(), "\x1b")

	closed := output{}.userTable(Streams{Out: closedPipe{}})
	require.NoError(t, closed.user(presence("alice", lastseen.Green, 0)))
	require.ErrorIs(t, closed.end(), context.Canceled)
}

// closedPipe accepts nothing.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, context.Canceled }

// TestHostileText: no text that others chose is a command of the terminal, in JSON as well.
func TestHostileText(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, writeJSON(&out, map[string]any{"<é😀": json.RawMessage("\"x\u009b31m\u202e\x7f\U000e0001\"")}))
	require.Contains(t, out.String(), `{"<é😀":"x\u009b31m\u202e\u007f\udb40\udc01"}`+"\n")
	require.Equal(t, "a\nb�]0;c�", Message(errors.New("lastseen: a\nb\x1b]0;c\u009b")))
	require.Equal(t, `"a b"`, word("a b"))
	require.Equal(t, `"a\x1b"`, word("a\x1b"))
	require.Equal(t, "a b", printable("a b"))
}
