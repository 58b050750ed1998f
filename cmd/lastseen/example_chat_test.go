package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chatExample is a running examples/chat.
type chatExample struct {
	page, server string // URLs
	cmd          *exec.Cmd
	dir          string // of its temporary files
}

// startChat builds and starts the example with the lastseen that the tests run, until the test ends.
func startChat(t *testing.T) *chatExample {
	t.Helper()
	program := filepath.Join(t.TempDir(), "chat")
	out, err := exec.Command("go", "build", "-o", program, "../../examples/chat").CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := &chatExample{dir: t.TempDir()}
	c.cmd = exec.Command(program, "--listen", "127.0.0.1:0", "--lastseen", os.Getenv(binaryVar))
	c.cmd.Env = append(os.Environ(), "TMPDIR="+c.dir)
	log := &lockedBuffer{}
	c.cmd.Stderr = log
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Signal(syscall.SIGTERM) // so that it ends its server
			_ = c.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, log)
	urls := regexp.MustCompile(`http://[\d.:]+`).FindAllString(line, -1)
	require.Len(t, urls, 2, line)
	c.page, c.server = urls[0], urls[1]
	return c
}

// writePicture writes what the browser shows to docs/pictures, once an expression holds, if the flag -update asks for
// it.
func writePicture(t *testing.T, b *browser, name, when string) {
	t.Helper()
	if !*update {
		return
	}
	b.do(t, until(when), settled)
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll("../../docs/pictures", 0o755))
	require.NoError(t, os.WriteFile("../../docs/pictures/"+name, picture, 0o644))
}

// TestChatExample runs the example as its readers do: the dots of users who come and go change, the visitor is green,
// and Ctrl-C leaves nothing behind.
func TestChatExample(t *testing.T) {
	t.Parallel()
	c := startChat(t)
	b := openBrowser(t, c.page)
	b.do(t, chromedp.EmulateViewport(1000, 680), prefersScheme("light"), chromedp.Navigate(c.page+"/?user=guest-1"),
		until(`document.querySelectorAll("#members li").length == 9`),
		until(memberStatus("guest-1")+` == "green"`))
	for _, status := range []string{"green", "yellow", "grey"} { // at the start, as the simulation promises
		b.do(t, until(`[...document.querySelectorAll("#members presence-dot")].some(dot =>
			dot.presence.status == "`+status+`")`))
	}
	b.do(t, until(`seen = {}, setInterval(() => document.querySelectorAll("#members li").forEach(member => {
			(seen[member.dataset.user] ??= new Set()).add(member.querySelector("presence-dot").presence.status)
		}), 50)`),
		until(`Object.values(seen).filter(statuses => statuses.size > 1).length > 2`)) // three users have changed
	require.Equal(t, "green", evaluate[string](t, b, `[...seen["guest-1"]].join()`))
	require.Empty(t, c.complaints(b))
	writePicture(t, b, "chat.png", `document.querySelectorAll("#talk li").length > 9 && ["green", "yellow", "grey"].every(
		(status, i) => document.querySelectorAll("#members presence-dot:state("+status+")").length >= [4, 1, 1][i])`)
	c.interrupt(t)
}

// memberStatus returns an expression for the status that the page shows for a user.
func memberStatus(user string) string {
	return `document.querySelector("#members [data-user='` + user + `'] presence-dot")?.presence?.status`
}

// complaints returns the problems of a page, except requests to the lastseen server.
func (c *chatExample) complaints(b *browser) (all []string) {
	for _, problem := range b.seen() {
		if !regexp.MustCompile("^request to (ws|http)" + c.server[len("http"):] + "/").MatchString(problem) {
			all = append(all, problem)
		}
	}
	return all
}

// interrupt stops the example as Ctrl-C does, and checks that neither its server nor a file is left.
func (c *chatExample) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, c.cmd.Wait(), "the exit code is 0")
	_, err := http.Get(c.server + "/healthz") //nolint:bodyclose // there is none
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestChatExampleTalks: two visitors read what the other one writes, one of them on a small screen in the dark, and
// signing out is seen at once.
func TestChatExampleTalks(t *testing.T) {
	t.Parallel()
	c := startChat(t)
	alice := openBrowser(t, c.page)
	alice.do(t, chromedp.Navigate(c.page+"/?user=not+valid"),
		until(`/^guest-\d+$/.test(document.getElementById("me").innerText)`),
		chromedp.Navigate(c.page+"/?user=guest-1"), until(memberStatus("guest-1")+` == "green"`))
	bob := openBrowser(t, c.page)
	bob.do(t, chromedp.EmulateViewport(360, 740), prefersScheme("dark"),
		chromedp.Navigate(c.page+"/?user=guest-2"), until(memberStatus("guest-1")+` == "green"`),
		chromedp.SendKeys(chromedp.CSS("#text"), "Hello <b>you</b>\n"))
	const said = `[...document.querySelectorAll("#talk li")].some(line => line.innerText.includes("Hello <b>you</b>"))`
	alice.do(t, until(said), until(memberStatus("guest-2")+` == "green"`))
	bob.do(t, until(said), settled)
	require.Empty(t, measure[[]string](t, bob, "faint(4.5)"))
	require.Empty(t, measure[[]string](t, bob, "cutOff()"))
	require.Equal(t, 360, evaluate[int](t, bob, "document.documentElement.scrollWidth"))
	bob.do(t, chromedp.Click(chromedp.CSS("#leave")))
	alice.do(t, until(memberStatus("guest-2")+` == "grey"`))
	c.interrupt(t)
}
