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

// progress shows on a terminal how far a file is: how much of it, how fast, and the time left. Elsewhere it shows
// nothing.
type progress struct {
	out   io.Writer // nil if it is no terminal
	bytes *counter
	began time.Time
	now   func() time.Time
	shown time.Time
}

func newProgress(out io.Writer, bytes *counter) *progress {
	p := &progress{bytes: bytes, began: time.Now(), now: time.Now}
	if f, ok := out.(*os.File); ok && term.IsTerminal(f.Fd()) {
		p.out = out
	}
	return p
}

// show shows that so many users are done, at most five times a second.
func (p *progress) show(users int) {
	now := p.now()
	if p.out == nil || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	passed := now.Sub(p.began)
	text := fmt.Sprintf("%d users, %.0f a second", users, float64(users)/passed.Seconds())
	if read := p.bytes.read; p.bytes.size > 0 && read > 0 {
		left := time.Duration(float64(passed) * (float64(p.bytes.size)/float64(read) - 1))
		text = fmt.Sprintf("%3d %%, %s, %s left", 100*read/p.bytes.size, text, max(0, left).Round(time.Second))
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", text)
}

// clear removes what is shown.
func (p *progress) clear() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprintf(p.out, "\r\x1b[K")
	}
}
