package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// followed is what is known of users who are followed.
type followed struct {
	roster client.Roster

	mu     sync.Mutex
	latest received
	shown  bool // latest was taken
}

// received is what a screen shows.
type received struct {
	users    []client.Presence // those who are green come first
	count    map[lastseen.Status]int
	complete bool      // users are all of them
	asOf     time.Time // by the server's clock
	err      error     // why the stream is interrupted; nil while it is not
}

// follow applies changes until they end.
func (f *followed) follow(all iter.Seq2[client.Changes, error]) (err error) {
	for changes, failed := range all {
		f.roster.Apply(changes, failed)
		f.mu.Lock()
		if f.latest.err = failed; failed == nil {
			f.latest.asOf = changes.AsOf
		}
		f.shown = false
		f.mu.Unlock()
		err = failed
	}
	return err
}

// take returns what is known, and false if that is what it returned before. Users who were never seen, or were deleted,
// are not in it.
func (f *followed) take() (r received, changed bool) {
	f.mu.Lock()
	r, changed = f.latest, !f.shown
	f.shown = true
	f.mu.Unlock()
	if !changed {
		return r, false
	}
	all, complete := f.roster.All()
	r.complete, r.count = complete, map[lastseen.Status]int{}
	byStatus := map[lastseen.Status][]client.Presence{}
	for _, p := range all {
		if p.LastSeen.IsZero() && p.Availability == "" {
			continue
		}
		r.count[p.Status]++
		byStatus[p.Status] = append(byStatus[p.Status], p)
	}
	for _, status := range lastseen.Statuses() {
		r.users = append(r.users, byStatus[status]...)
	}
	return r, true
}

// showScreen shows changes on a terminal until somebody quits, the context ends, or the changes do.
func showScreen(
	ctx context.Context, out io.Writer, namespace string,
	changes func(context.Context) iter.Seq2[client.Changes, error],
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var f followed
	program := tea.NewProgram(screen{namespace: namespace, take: f.take}, tea.WithOutput(out),
		tea.WithEnvironment(environ()), tea.WithoutSignalHandler())
	defer context.AfterFunc(ctx, program.Quit)() // with the context of a program, it would not wait for its reader
	ended := make(chan error, 1)
	go func() {
		ended <- f.follow(changes(ctx))
		program.Quit()
	}()
	_, err := program.Run()
	cancel()
	if failed := <-ended; err == nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	return err
}

// screen is a table of users that changes while it is shown. It implements [tea.Model].
type screen struct {
	namespace string
	take      func() (r received, changed bool)
	received
	at            time.Time // when that was received
	now           time.Time
	width, height int
	top           int // the first user that is shown
}

// tick has the screen look what changed, and the ages grow.
type tick time.Time

func nextTick() tea.Cmd {
	return tea.Tick(500*time.Millisecond, func(at time.Time) tea.Msg { return tick(at) })
}

// Init implements [tea.Model].
func (screen) Init() tea.Cmd { return nextTick() }

// Update implements [tea.Model].
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tick:
		s.now, next = time.Time(msg), nextTick()
		if r, changed := s.take(); changed {
			s.received, s.at = r, s.now
		}
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
			s.top = len(s.users)
		}
	}
	s.top = max(0, min(s.top, len(s.users)-s.rows()))
	return s, next
}

// rows is how many users fit.
func (s screen) rows() int { return max(0, s.height-4) }

// View implements [tea.Model].
func (s screen) View() tea.View {
	lines := []string{s.title(), ""}
	bottom := min(s.top+s.rows(), len(s.users))
	name := 4
	for _, p := range s.users[s.top:bottom] {
		name = max(name, ansi.StringWidth(word(p.User)))
	}
	name = min(name, max(4, s.width/2))
	for _, p := range s.users[s.top:bottom] {
		lines = append(lines, s.line(p, name))
	}
	for len(lines) < s.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines, "", fmt.Sprintf("\x1b[2m%d–%d of %d   q quit   ↑ ↓ PgUp PgDn\x1b[m",
		min(s.top+1, bottom), bottom, len(s.users)))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], s.width, "…")
	}
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen = true
	return view
}

// title says what is shown, and up to which time it is complete.
func (s screen) title() string {
	title := fmt.Sprintf("\x1b[1m%s\x1b[m   green %d   yellow %d   grey %d   ",
		s.namespace, s.count[lastseen.Green], s.count[lastseen.Yellow], s.count[lastseen.Grey])
	switch {
	case s.err != nil:
		return title + "\x1b[31minterrupted: " + printable(Message(s.err)) + "\x1b[m"
	case !s.complete:
		return title + "reading"
	}
	return title + "as of " + s.asOf.UTC().Format(time.TimeOnly)
}

// serverTime is what the server's clock says by now, while changes arrive.
func (s screen) serverTime() time.Time {
	if s.err != nil {
		return s.asOf
	}
	return s.asOf.Add(max(0, s.now.Sub(s.at)))
}

// line is the line of one user.
func (s screen) line(p client.Presence, width int) string {
	seen := "" // who is green is here
	if p.Status != lastseen.Green {
		seen = ago(p.LastSeen, s.serverTime())
	}
	return pad(ansi.Truncate(word(p.User), width, "…"), width) + "  " + pad(dot(p.Status), 8) + "  " + pad(seen, 9) +
		"  " + details(p)
}

// pad fills a text up with spaces.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}
