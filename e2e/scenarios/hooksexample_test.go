package scenarios

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// mailServer accepts mails, and refuses the first one. It is a fake: there is no mail server to install for one test.
func mailServer(t *testing.T) (address string, mails <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	got := make(chan string, 100)
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			receiveMail(conn, n == 0, got)
		}
	}()
	return listener.Addr().String(), got
}

func receiveMail(conn net.Conn, refuse bool, got chan<- string) {
	defer conn.Close()
	fmt.Fprint(conn, "220 mail\r\n")
	var recipient string
	inMail := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case inMail && line != ".":
		case strings.HasPrefix(line, "RCPT TO:"):
			recipient = strings.Trim(line[len("RCPT TO:"):], "<>")
			fmt.Fprint(conn, "250 ok\r\n")
		case line == "DATA" && refuse:
			fmt.Fprint(conn, "451 later\r\n")
		case line == "DATA":
			inMail = true
			fmt.Fprint(conn, "354 go on\r\n")
		case inMail:
			inMail = false
			got <- recipient
			fmt.Fprint(conn, "250 ok\r\n")
		case line == "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
		default: // EHLO and MAIL
			fmt.Fprint(conn, "250 ok\r\n")
		}
	}
}

// passEvents passes events on to a receiver, and keeps them.
func passEvents(t *testing.T, receiver string) (address string, events *testenv.Log) {
	t.Helper()
	target, err := url.Parse(strings.TrimSpace(receiver))
	require.NoError(t, err)
	events = &testenv.Log{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	passes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
		_, _ = events.Write(body)
	}))
	t.Cleanup(passes.Close)
	return passes.URL, events
}

// TestHooksExample: the example mails who has been gone for the time of the webhook's hold, also after a mail server
// that failed, and nobody who came back within it or whose ID is no address.
func TestHooksExample(t *testing.T) {
	t.Parallel()
	mail, mails := mailServer(t)
	secret := testserver.WriteFile(t, "hook", []byte("whsec_"+strings.Repeat("abcd", 8)+"\n"))
	receiver, log := startService(t, "examples/hooks", "receiving at ",
		"-secret-file", secret, "-smtp", mail, "-domain", "example.org")
	address, events := passEvents(t, receiver)
	s := testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"webhooks: {app: {url: %q, secrets-file: %q, namespaces: [chat], hold: 5s}}", address, secret)))
	s.Post(t, "/v1/namespaces/chat/pings", // at once, so that all are in the snapshot
		`{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"no address"}]}`)
	snapshot := regexp.MustCompile(`"type":"presence.snapshot".*"user":"no address".*"more":false`)
	began := func() bool { return snapshot.MatchString(events.String()) }
	require.Eventually(t, began, scenarioWait, 50*time.Millisecond)
	s.Post(t, "/v1/namespaces/chat/users/carol/leave", "")
	back := func() bool { return s.Post(t, "/v1/namespaces/chat/users/carol/ping", "")["status"] == "green" }
	require.Eventually(t, back, scenarioWait, time.Millisecond) // a ping in the millisecond of the leave does not count
	for _, user := range []string{"no%20address", "alice", "bob"} {
		s.Post(t, "/v1/namespaces/chat/users/"+user+"/leave", "")
	}
	sent := func() bool { return len(mails) >= 2 }
	require.Eventually(t, sent, scenarioWait, 50*time.Millisecond, "%s%s", log, events)
	require.ElementsMatch(t, []string{"alice@example.org", "bob@example.org"}, []string{<-mails, <-mails})
	require.Contains(t, log.String(), "451")
	require.Contains(t, log.String(), `"no address" has no address`)
	require.Empty(t, mails)
}
