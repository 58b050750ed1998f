package scenarios

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// TestHooksExample: the example mails who has been gone for the time of the webhook's hold, also after a mail server
// that failed, and nobody who came back within it or whose ID is no address.
func TestHooksExample(t *testing.T) {
	t.Parallel()
	mail, mails := mailServer(t)
	secret := testserver.WriteFile(t, "hook", []byte("whsec_"+strings.Repeat("abcd", 8)+"\n"))
	url, log := startService(t, "examples/hooks", "receiving at ",
		"-secret-file", secret, "-smtp", mail, "-domain", "example.org")
	s := testserver.Start(t, "--admin-listen", "127.0.0.1:0", "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"webhooks: {app: {url: %q, secrets-file: %q, namespaces: [chat], hold: 5s}}", url, secret)))
	s.Post(t, "/v1/namespaces/chat/pings", // at once, so that all are in the snapshot
		`{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"no address"}]}`)
	require.Eventually(t, func() bool { // a snapshot, after a reset if the namespace was there first
		metrics, delivered := s.Metrics(t), `lastseen_webhooks_requests_total{result="delivered",webhook="app"} `
		return strings.Contains(metrics, delivered+"2") ||
			strings.Contains(metrics, delivered+"1") && !strings.Contains(metrics, "lastseen_webhooks_resets_total{")
	}, scenarioWait, 50*time.Millisecond)
	s.Post(t, "/v1/namespaces/chat/users/carol/leave", "")
	s.Post(t, "/v1/namespaces/chat/users/carol/ping", "") // at once: a busy machine must not take longer than the hold
	for _, user := range []string{"no%20address", "alice", "bob"} {
		s.Post(t, "/v1/namespaces/chat/users/"+user+"/leave", "")
	}
	require.Eventually(t, func() bool { return len(mails) == 2 }, scenarioWait, 50*time.Millisecond)
	require.ElementsMatch(t, []string{"alice@example.org", "bob@example.org"}, []string{<-mails, <-mails})
	require.Contains(t, log.String(), "451")
	require.Contains(t, log.String(), `"no address" has no address`)
	require.Empty(t, mails)
}
