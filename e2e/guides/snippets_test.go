package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	return string(text)
}

// TestReadmeOpensWithTwoCommands: after one sentence come the commands that run lastseen and test it, which need only
// Go, and a picture.
func TestReadmeOpensWithTwoCommands(t *testing.T) {
	t.Parallel()
	const begin = "^# lastseen\n\n[^\n]+\\.\n\n    go run \\./cmd/lastseen\n    go test \\./\\.\\.\\.\n\n!\\[[^]]+]\\(docs/pictures/\\w+\\.svg\\)\n"
	require.Regexp(t, begin, readme(t))
}

// TestReadmeSnippets: a test runs or pastes each snippet of the README. Who adds one adds its test here.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	var fences, commands []string
	for _, match := range regexp.MustCompile("(?m)^```(\\w+)$").FindAllStringSubmatch(readme(t), -1) {
		fences = append(fences, match[1])
	}
	require.Equal(t, []string{"html", "console"}, fences, "TestReadmePage and TestReadme")
	for _, match := range regexp.MustCompile(`(?m)^    (\S.*)$`).FindAllStringSubmatch(readme(t), -1) {
		commands = append(commands, match[1])
	}
	require.Equal(t, []string{
		"go run ./cmd/lastseen", // what all tests here start
		"go test ./...",         // what runs this test
		"git clone https://github.com/lastseen/lastseen && cd lastseen", // TestReadmeInstalls, without the network
		"go install ./cmd/lastseen",                                     // TestReadmeInstalls
		"go run ./cmd/lastseen --cors-origins http://localhost:8000",    // TestReadmePage
		"python3 -m http.server 8000",                                   // TestReadmePage has its own server
	}, commands)
	// deploy/test runs this one, as it is in the guide.
	guide, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	require.Contains(t, readme(t), "`docker build -t lastseen .`")
	require.Contains(t, string(guide), "\n    docker build -t lastseen .\n")
}

// TestReadmeInstalls: the command installs the program of the module that the README clones.
func TestReadmeInstalls(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(module), "module github.com/lastseen/lastseen\n")
	dir := t.TempDir()
	install := testenv.Command("go", "install", "./cmd/lastseen")
	install.Dir = "../.."
	install.Env = append(os.Environ(), "GOBIN="+dir)
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = testenv.Command(filepath.Join(dir, "lastseen"), "version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "lastseen")
}

// TestReadmePage pastes the page of the README, and starts the server as the README says, but for the ports. The page
// has another origin. Alice is online, and Bob a ring until he pings.
func TestReadmePage(t *testing.T) {
	t.Parallel()
	site := newGuideSite(t, map[string]string{
		"/": testguide.Block(t, testguide.Blocks(t, "../README.md", "html"), "<!doctype html>"),
	})
	_, args, found := strings.Cut(readme(t), "    go run ./cmd/lastseen --")
	require.True(t, found)
	args, _, _ = strings.Cut(args, "\n")
	s := testserver.Start(t, strings.Fields("--"+strings.Replace(args, "http://localhost:8000", site.url, 1))...)
	site.server = s.URL
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(dotOf("alice")+` == "green" && `+dotOf("bob")+` == "grey"`))
	s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
	b.Do(t, until(dotOf("bob")+` == "green"`))
	require.Empty(t, site.complaints(b))
}

// TestFAQ pastes the code of docs/faq.md into a page that has no token: it learns why it is refused.
func TestFAQ(t *testing.T) {
	t.Parallel()
	const logged = "const log = []\nwindow.log = log\nconsole.warn = (...args) => log.push(args.join(' '))\n"
	site := newGuideSite(t, map[string]string{
		"/": guideModule(logged + testguide.Block(t, testguide.Blocks(t, "faq.md", "js"), "onrefused")),
	})
	site.startWithTokens(t)
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(`log.includes("401 unauthenticated")`))
}

// TestInstallGuideAgrees: the commands of docs/install.md for systemd and Kubernetes are those in the files that they
// install. deploy/test runs those of Docker.
func TestInstallGuideAgrees(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	for section, file := range map[string]string{
		"2. systemd":    "systemd/lastseen.service",
		"5. Kubernetes": "kubernetes.yaml",
	} {
		content, err := os.ReadFile("../../deploy/" + file)
		require.NoError(t, err)
		_, text, found := strings.Cut(string(guide), "\n## "+section+"\n")
		require.True(t, found, section)
		text, _, _ = strings.Cut(text, "\n## ")
		commands := regexp.MustCompile("(?m)^    (.*)$").FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, commands, section)
		for _, command := range commands {
			if command[1] != "go build -o lastseen ./cmd/lastseen" {
				require.Contains(t, string(content), "#     "+command[1]+"\n", section)
			}
		}
	}
}
