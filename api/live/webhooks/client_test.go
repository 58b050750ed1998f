package webhooks

import (
	"bufio"
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// receiver returns a webhook for a URL, and a client for it.
func receiver(t *testing.T, address string, roots *x509.CertPool) (*Webhook, *client) {
	t.Helper()
	secrets, err := ParseSecrets([]byte(secretOf(32, 1)))
	require.NoError(t, err)
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	w := &Webhook{URL: parsed, Secrets: secrets, RootCAs: roots}
	return w, newClient(NewTransport(w))
}

// TestRequest: a request is what the specification says, over TLS that is verified, with a user and a password if the
// URL has them.
func TestRequest(t *testing.T) {
	t.Parallel()
	signer, err := standardwebhooks.NewWebhook(secretOf(32, 1))
	require.NoError(t, err)
	e := testEncoder().reset()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, len(e.Body))
		_, _ = io.ReadFull(r.Body, body)
		user, password, _ := r.BasicAuth()
		if r.Method != http.MethodPost || r.URL.RequestURI() != "/hooks?a=b" || user+password != "alicesecret" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Webhook-Id") != e.ID ||
			signer.Verify(body, r.Header) != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a handshake fails
	server.StartTLS()
	t.Cleanup(server.Close)
	address := strings.Replace(server.URL, "://", "://alice:secret@", 1) + "/hooks?a=b"
	w, unknown := receiver(t, address, nil)
	a := unknown.try(t.Context(), w, e)
	require.Equal(t, Failed, a.Result)
	require.ErrorContains(t, a.reason, "certificate")
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	w, known := receiver(t, address, roots)
	require.Equal(t, answer{Result: Delivered}, known.try(t.Context(), w, e))
}

// TestRedirectsAreNotFollowed: what a receiver answers does not choose where events go.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)
	w, c := receiver(t, server.URL, nil)
	a := c.try(t.Context(), w, testEncoder().reset())
	require.Equal(t, Failed, a.Result)
	require.EqualError(t, a.reason, "the receiver answered 307")
}

// TestLinkLocalAddresses: an address is checked when it is connected to, after names were resolved.
func TestLinkLocalAddresses(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.1.1]:80": true, "224.0.0.1:80": true,
		"[64:ff9b::a9fe:a9fe]:80": true, "[64:ff9b::a00:1]:80": false,
		"10.0.0.1:80": false, "127.0.0.1:80": false, "[::1]:80": false, "192.168.1.1:443": false, "[fd00::1]:80": false,
	} {
		err := refuseLinkLocal("tcp", address, nil)
		if refused {
			require.ErrorIs(t, err, errLinkLocal, address)
		} else {
			require.NoError(t, err, address)
		}
	}
	w, c := receiver(t, "http://169.254.169.254/latest/meta-data/?token=secret", nil)
	a := c.try(t.Context(), w, testEncoder().reset())
	require.Equal(t, Failed, a.Result)
	require.EqualError(t, a.reason, "link-local addresses are refused")
}

// TestReasonsHideResponses: no reason for the log has a part of a response that is not HTTP.
func TestReasonsHideResponses(t *testing.T) {
	t.Parallel()
	for _, response := range []string{
		"HTTP/1.1 private\r\n\r\n", "HTTP/1.1 200 OK\r\nprivate\r\n\r\n", "private",
		"HTTP/1.1 302 Found\r\nLocation: http://[private\r\nContent-Length: 0\r\n\r\n", "",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { listener.Close() })
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = conn.Write([]byte(response))
		}()
		w, c := receiver(t, "http://"+listener.Addr().String(), nil)
		a := c.try(t.Context(), w, testEncoder().reset())
		require.Equal(t, Failed, a.Result, response)
		require.NotContains(t, a.reason.Error(), "private")
		require.NotContains(t, a.reason.Error(), "127.0.0.1")
	}
}

// TestReasonsHideTheURL: no reason for the log has the URL, or the name of the receiver.
func TestReasonsHideTheURL(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for address, ctx := range map[string]context.Context{
		"http://hooks.invalid/secret-path": t.Context(), closed.URL + "/secret-path": t.Context(),
		"https://user:password@hooks.invalid/secret-path": ended,
	} {
		w, c := receiver(t, address, nil)
		a := c.try(ctx, w, testEncoder().reset())
		require.Equal(t, Failed, a.Result)
		for _, hidden := range []string{"secret-path", "hooks.invalid", "password", "127.0.0.1"} {
			require.NotContains(t, a.reason.Error(), hidden)
		}
	}
}
