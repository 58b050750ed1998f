package cli

import (
	"context"
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

// shown returns the lines of a screen after some messages, without colours.
func shown(messages ...tea.Msg) []string {
	var model tea.Model = screen{namespace: "chat"}
	for _, m := range messages {
		model, _ = model.Update(m)
	}
	lines := strings.Split(ansi.Strip(model.View().Content), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// TestScreen: who is green comes first, ages are those of the server's clock, and nothing is wider than the terminal.
func TestScreen(t *testing.T) {
	t.Parallel()
	all := heard{complete: true, asOf: noon, users: []client.Presence{
		presence("alice", lastseen.Grey, 25*time.Hour),
		presence("bob \x1b[31m", lastseen.Green, time.Hour),
		presence("carol", lastseen.Yellow, 90*time.Second),
		{User: "dora", Status: lastseen.Grey},
	}}
	all.users[1].Note = "back\x07"
	require.Equal(t, []string{
		"chat   green 1   yellow 1   grey 2   as of 12:00:00",
		"",
		`"bob \x1b[31m"  ● green              "back\a"`,
		"carol           ● yellow  1m ago",
		"alice           ● grey    1d ago",
		"dora            ● grey    never",
		"", "",
		"1–4 of 4   q quit   ↑ ↓ PgUp PgDn",
	}, shown(tea.WindowSizeMsg{Width: 60, Height: 9}, all))
	narrow := shown(tea.WindowSizeMsg{Width: 20, Height: 9}, all)
	require.Equal(t, `"bob \x1b…  ● green…`, narrow[2])
	for _, line := range narrow {
		require.LessOrEqual(t, ansi.StringWidth(line), 20)
	}
}

// TestScreenSaysWhatIsKnown: a screen that has not everybody yet, or is interrupted, says so, and ages stand still.
func TestScreenSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	size := tea.WindowSizeMsg{Width: 90, Height: 9}
	h := heard{asOf: noon, users: []client.Presence{presence("alice", lastseen.Yellow, time.Second)}}
	require.Contains(t, shown(size, h)[0], "reading")
	h.complete = true
	h.err = errors.New("lastseen: the server\nended")
	lines := shown(size, h, tick(time.Now().Add(time.Hour)))
	require.Contains(t, lines[0], `interrupted: "the server\nended"`)
	require.Contains(t, lines[2], "1s ago")
	h.err = nil
	require.Contains(t, shown(size, h, tick(time.Now().Add(time.Hour)))[2], "1h ago")
}

// TestScreenMoves: keys move the table, within its ends, also when it shrinks or the terminal does.
func TestScreenMoves(t *testing.T) {
	t.Parallel()
	h := heard{complete: true, asOf: noon}
	for n := range 20 {
		h.users = append(h.users, presence(fmt.Sprintf("user-%02d", n), lastseen.Green, 0))
	}
	key := func(code rune) tea.Msg { return tea.KeyPressMsg{Code: code} }
	for _, c := range []struct {
		keys []tea.Msg
		want string
	}{
		{nil, "1–6 of 20"},
		{[]tea.Msg{key(tea.KeyDown)}, "2–7 of 20"},
		{[]tea.Msg{key(tea.KeyUp)}, "1–6 of 20"},
		{[]tea.Msg{key(tea.KeyPgDown), key(tea.KeyUp)}, "6–11 of 20"},
		{[]tea.Msg{key(tea.KeyEnd), key(tea.KeyPgDown)}, "15–20 of 20"},
		{[]tea.Msg{key(tea.KeyEnd), key(tea.KeyPgUp)}, "9–14 of 20"},
		{[]tea.Msg{key(tea.KeyEnd), key(tea.KeyHome)}, "1–6 of 20"},
		{[]tea.Msg{key(tea.KeyEnd), heard{users: h.users[:8]}}, "3–8 of 8"},
		{[]tea.Msg{key(tea.KeyEnd), tea.WindowSizeMsg{Width: 60, Height: 30}}, "1–20 of 20"},
		{[]tea.Msg{heard{}}, "0–0 of 0"},
		{[]tea.Msg{tea.WindowSizeMsg{Width: 60, Height: 2}}, "0–0 of 20"},
	} {
		lines := shown(append([]tea.Msg{tea.WindowSizeMsg{Width: 60, Height: 10}, h}, c.keys...)...)
		require.Contains(t, lines[len(lines)-1], c.want+" ", "%v", c.keys)
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
			"2026-11-29T12:00:00Z al ice green (left, idle, in a call, busy)\n2026-11-29T12:00:00Z bob grey\n",
		true: `{"reset":true}` + "\n" + `{"user":"al ice","status":"green","last_seen":"2026-11-29T12:00:00Z",` +
			`"left":true,"activity":"idle","availability":"busy","in_call":true}` + "\n" +
			`{"user":"bob","status":"grey","last_seen":"2026-11-29T12:00:00Z","left":false}` + "\n",
	} {
		var out, log strings.Builder
		cmd := watchCmd{output: output{JSON: json}}
		require.NoError(t, cmd.lines(t.Context(), Streams{&out, &log}, iter.Seq2[client.Changes, error](all)))
		require.Equal(t, want, out.String())
		require.Equal(t, "lastseen: interrupted: broken\n", log.String())
	}
}

// TestListen: what is known is told after each part, until the stream ends for good.
func TestListen(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var told []string
	err := listen(func(yield func(client.Changes, error) bool) {
		alice, bob := []client.Presence{{User: "alice"}}, []client.Presence{{User: "bob"}}
		_ = yield(client.Changes{AsOf: noon, Reset: true, More: true, Users: alice}, nil) &&
			yield(client.Changes{AsOf: noon, Users: bob}, nil) &&
			yield(client.Changes{}, broken)
	}, func(h heard) { told = append(told, fmt.Sprint(len(h.users), h.complete, h.err)) })
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{"1 false <nil>", "2 true <nil>", "2 true broken"}, told)
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
