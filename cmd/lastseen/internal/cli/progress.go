package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
)

// counter counts what is read of a file.
type counter struct {
	io.Reader
	read int64
	size int64 // 0 if it is not known
}

func newCounter(file io.Reader) *counter {
	c := &counter{Reader: file}
	if f, ok := file.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			c.size = info.Size()
		}
	}
	return c
}

// Read implements [io.Reader].
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read += int64(n)
	return n, err
}

// Progress shows on a terminal how many users are done, how fast, and of a file how much of it and the time left.
// Elsewhere it shows nothing.
type Progress struct {
	out   io.Writer // nil if it is no terminal
	bytes *counter  // of a file; nil for none
	began time.Time
	now   func() time.Time
	shown time.Time
}

// NewProgress returns what shows on out, if that is a terminal.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{began: time.Now(), now: time.Now}
	if f, ok := out.(*os.File); ok && term.IsTerminal(f.Fd()) {
		p.out = out
	}
	return p
}

// Show shows that so many users are done, at most five times a second.
func (p *Progress) Show(users int) {
	now := p.now()
	if p.out == nil || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	passed := now.Sub(p.began)
	text := fmt.Sprintf("%d users, %.0f a second", users, float64(users)/passed.Seconds())
	if p.bytes != nil && p.bytes.size > 0 && p.bytes.read > 0 {
		read := p.bytes.read
		left := time.Duration(float64(passed) * (float64(p.bytes.size)/float64(read) - 1))
		text = fmt.Sprintf("%3d %%, %s, %s left", 100*read/p.bytes.size, text, max(0, left).Round(time.Second))
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", text)
}

// Clear removes what is shown.
func (p *Progress) Clear() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprintf(p.out, "\r\x1b[K")
	}
}
