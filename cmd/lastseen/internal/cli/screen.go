package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// screen is a table of users that changes while it is shown. It implements [tea.Model].
type screen struct {
	namespace     string
	heard         heard
	at            time.Time // when that was heard
	now           time.Time
	width, height int
	top           int // the first user that is shown
}

// followed returns changes until a context ends.
type followed func(context.Context) iter.Seq2[client.Changes, error]

// showScreen shows changes on a terminal until somebody quits, the context ends, or the changes do.
func showScreen(ctx context.Context, out io.Writer, namespace string, changes followed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(screen{namespace: namespace}, tea.WithContext(ctx), tea.WithOutput(out),
		tea.WithoutSignalHandler())
	ended := make(chan error, 1)
	go func() {
		ended <- listen(changes(ctx), func(h heard) { program.Send(h) })
		program.Quit()
	}()
	_, err := program.Run()
	cancel()
	if failed := <-ended; err == nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	return err
}

// tick has the ages grow.
type tick time.Time

func nextTick() tea.Cmd { return tea.Tick(time.Second, func(at time.Time) tea.Msg { return tick(at) }) }

// Init implements [tea.Model].
func (s screen) Init() tea.Cmd { return nextTick() }

// Update implements [tea.Model].
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case heard:
		slices.SortStableFunc(msg.users, byStatus)
		s.heard, s.at, s.now = msg, time.Now(), time.Now()
	case tick:
		s.now = time.Time(msg)
		return s, nextTick()
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		case "up", "k":
			s.top--
		case "down", "j":
			s.top++
		case "pgup":
			s.top -= s.rows()
		case "pgdown", "space":
			s.top += s.rows()
		case "home", "g":
			s.top = 0
		case "end", "G":
			s.top = len(s.heard.users)
		}
	}
	s.top = max(0, min(s.top, len(s.heard.users)-s.rows()))
	return s, nil
}

// byStatus orders users: who is green comes first.
func byStatus(a, b client.Presence) int {
	return cmp.Compare(slices.Index(lastseen.Statuses(), a.Status), slices.Index(lastseen.Statuses(), b.Status))
}

// rows is how many users fit.
func (s screen) rows() int { return max(0, s.height-4) }

// View implements [tea.Model].
func (s screen) View() tea.View {
	lines := []string{s.title(), ""}
	bottom := min(s.top+s.rows(), len(s.heard.users))
	name := 4
	for _, p := range s.heard.users[s.top:bottom] {
		name = max(name, ansi.StringWidth(printable(p.User)))
	}
	name = min(name, max(4, s.width/2))
	for _, p := range s.heard.users[s.top:bottom] {
		lines = append(lines, s.line(p, name))
	}
	for len(lines) < s.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines, "", fmt.Sprintf("\x1b[2m%d–%d of %d   q quit   ↑ ↓ PgUp PgDn\x1b[m",
		min(s.top+1, bottom), bottom, len(s.heard.users)))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], s.width, "…")
	}
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen = true
	return view
}

// title says what is shown, and whether it is true now.
func (s screen) title() string {
	count := map[lastseen.Status]int{}
	for _, p := range s.heard.users {
		count[p.Status]++
	}
	title := fmt.Sprintf("\x1b[1m%s\x1b[m   green %d   yellow %d   grey %d   ",
		s.namespace, count[lastseen.Green], count[lastseen.Yellow], count[lastseen.Grey])
	switch {
	case s.heard.err != nil:
		return title + "\x1b[31minterrupted: " + printable(Message(s.heard.err)) + "\x1b[m"
	case !s.heard.complete:
		return title + "reading"
	}
	return title + "as of " + s.serverTime().UTC().Format(time.TimeOnly)
}

// serverTime is what the server's clock says by now, while changes arrive.
func (s screen) serverTime() time.Time {
	if s.heard.err != nil {
		return s.heard.asOf
	}
	return s.heard.asOf.Add(max(0, s.now.Sub(s.at)))
}

// line is the line of one user.
func (s screen) line(p client.Presence, width int) string {
	name := ansi.Truncate(printable(p.User), width, "…")
	name += strings.Repeat(" ", width-ansi.StringWidth(name))
	seen := "" // who is green is here
	if p.Status != lastseen.Green {
		seen = ago(p.LastSeen, s.serverTime())
	}
	status := dot(p.Status)
	return name + "  " + status + strings.Repeat(" ", 8-ansi.StringWidth(status)) + "  " +
		fmt.Sprintf("%-9s", seen) + "  " + details(p)
}
