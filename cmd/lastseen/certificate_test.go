package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testserver"
)

// makeCertificate returns a certificate for a name and for this machine, and its key.
func makeCertificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

type keyPairFiles struct{ cert, key string }

func newKeyPair(t *testing.T, name string) keyPairFiles {
	t.Helper()
	dir := t.TempDir()
	files := keyPairFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	files.write(t, name)
	return files
}

func (f keyPairFiles) write(t *testing.T, name string) {
	t.Helper()
	cert, key := makeCertificate(t, name)
	require.NoError(t, os.WriteFile(f.cert, cert, 0o600))
	require.NoError(t, os.WriteFile(f.key, key, 0o600))
}

// shownAt returns the name in the certificate that a server shows to a new connection.
func shownAt(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
}

// serveCertificate shows the certificate on a port of this machine, and returns its address.
func serveCertificate(t *testing.T, c *certificate) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", c.config())
	require.NoError(t, err)
	server := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

func openPair(t *testing.T, files keyPairFiles) (c *certificate, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	c, err := openCertificate(&config.Config{Values: config.Values{Settings: config.Settings{
		TLSCert: files.cert,
		TLSKey:  files.key,
	}}}, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	return c, log
}

// TestCertificateBehindLinks replaces files as Kubernetes does: they are links into a folder that is a link,
// which is swapped.
func TestCertificateBehindLinks(t *testing.T) {
	dir := t.TempDir()
	mount := func(version, name string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		keyPairFiles{filepath.Join(dir, version, "tls.crt"), filepath.Join(dir, version, "tls.key")}.write(t, name)
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	mount("..1", "one.example.com")
	files := keyPairFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	require.NoError(t, os.Symlink("..data/tls.crt", files.cert))
	require.NoError(t, os.Symlink("..data/tls.key", files.key))
	c, log := openPair(t, files)
	address := serveCertificate(t, c)
	require.Equal(t, "one.example.com", shownAt(t, address))

	mount("..2", "two.example.com")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "..1")))
	require.Equal(t, "one.example.com", shownAt(t, address), "not read yet")
	c.refresh()
	require.Equal(t, "two.example.com", shownAt(t, address))
	require.Regexp(t, `msg="certificate read".*two\.example\.com`, log.String())
	log.Reset()
	c.refresh()
	require.Empty(t, log.String(), "nothing is new")
}

// TestInvalidCertificateIsNotUsed: the old one stays, the log says so once, and it is mended by itself.
func TestInvalidCertificateIsNotUsed(t *testing.T) {
	files := newKeyPair(t, "one.example.com")
	c, log := openPair(t, files)
	address := serveCertificate(t, c)
	cert, key := makeCertificate(t, "two.example.com")
	for _, broken := range []struct {
		do   func() error
		want string
	}{
		{func() error { return os.WriteFile(files.cert, cert, 0o600) }, "private key does not match public key"},
		{func() error { return os.WriteFile(files.key, key[:len(key)/2], 0o600) }, "failed to find any PEM data"},
		{func() error { return os.WriteFile(files.cert, nil, 0o600) }, "failed to find any PEM data"},
		{func() error { return os.Remove(files.key) }, "tls.key: no such file"},
	} {
		log.Reset()
		require.NoError(t, broken.do())
		c.refresh()
		c.refresh()
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "once: %s", log)
		require.Contains(t, log.String(), "certificate not replaced: the old one stays in use")
		require.Contains(t, log.String(), broken.want)
		require.NotContains(t, log.String(), string(key[40:60]), "the key is a secret")
		require.Equal(t, "one.example.com", shownAt(t, address))
	}
	files.write(t, "two.example.com")
	c.refresh()
	require.Equal(t, "two.example.com", shownAt(t, address))
}

// TestCertificateIsPolled: the files are read again and again, until the server ends.
func TestCertificateIsPolled(t *testing.T) {
	files := newKeyPair(t, "1.example.com")
	c, _ := openPair(t, files)
	name := func() string { return c.current.Load().Leaf.DNSNames[0] }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go (&runtimeConfig{certificate: c}).run(ctx, nil)
		for _, next := range []string{"2.example.com", "3.example.com"} {
			before := name()
			files.write(t, next)
			time.Sleep(certificatePause - time.Nanosecond)
			synctest.Wait()
			require.Equal(t, before, name())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, next, name())
		}
		cancel()
		synctest.Wait()
		files.write(t, "4.example.com")
		time.Sleep(time.Hour)
		require.Equal(t, "3.example.com", name())
	})
}

// TestNoCertificateIsRefreshed: a server without TLS has none.
func TestNoCertificateIsRefreshed(t *testing.T) {
	var none *certificate
	require.NotPanics(t, none.refresh)
}

func TestWrongCertificates(t *testing.T) {
	files, other := newKeyPair(t, "a"), newKeyPair(t, "b")
	for content, want := range map[string]string{
		"tls-cert: " + files.cert: "tls-cert is " + files.cert +
			" (lastseen.yaml:1) and tls-key is not set (default): TLS requires both",
		"tls-key: " + files.key: "tls-cert is not set (default) and tls-key is " + files.key +
			" (lastseen.yaml:1): TLS requires both",
		"tls-cert: " + files.cert + "\ntls-key: " + other.key: "tls-cert is " + files.cert +
			" (lastseen.yaml:1) and tls-key is " + other.key +
			" (lastseen.yaml:2): tls: private key does not match public key",
		"tls-cert: " + files.cert + "\ntls-key: /none": "tls-cert is " + files.cert +
			" (lastseen.yaml:1) and tls-key is /none (lastseen.yaml:2): /none: no such file or directory",
	} {
		_, err := loadText(t, content)
		require.EqualError(t, err, want, content)
	}
	_, err := loadText(t, "tls-cert: "+files.cert+"\ntls-key: "+files.key)
	require.NoError(t, err)
}

// TestTLSOfTheProcess: HTTP/2, the new certificate after a hangup, and a health check that finds its way.
func TestTLSOfTheProcess(t *testing.T) {
	files := newKeyPair(t, "one.example.com")
	file := testserver.WriteConfig(t, "")
	s := testserver.Start(t, "--config", file, "--tls-cert", files.cert, "--tls-key", files.key)
	address, secure := strings.CutPrefix(s.URL, "https://")
	require.True(t, secure, s.URL)
	require.True(t, strings.HasPrefix(s.Docs, "https://"), s.Docs)
	get := func() (int, string) {
		trusted := x509.NewCertPool()
		cert, err := os.ReadFile(files.cert)
		require.NoError(t, err)
		trusted.AppendCertsFromPEM(cert)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(s.URL + "/healthz")
		require.NoError(t, err)
		defer response.Body.Close()
		require.Equal(t, "HTTP/2.0", response.Proto)
		return response.StatusCode, response.TLS.PeerCertificates[0].DNSNames[0]
	}
	status, name := get()
	require.Equal(t, []any{http.StatusOK, "one.example.com"}, []any{status, name})

	require.NoError(t, os.Remove(files.key))
	hangup(t, s, file, "green: 50s")
	requireLogged(t, s, "green: 60s → 50s") // a broken certificate holds nothing else up
	files.write(t, "two.example.com")
	hangup(t, s, "", "")
	shown := func() bool { return shownAt(t, address) == "two.example.com" }
	require.Eventually(t, shown, time.Minute, time.Millisecond)
	_, name = get()
	require.Equal(t, "two.example.com", name)

	_, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS10,
		MaxVersion: tls.VersionTLS11,
	})
	require.ErrorContains(t, err, "protocol version")
	require.Zero(t, run(t.Context(), []string{"health", "--listen", address}, io.Discard, io.Discard))
	require.Zero(t, s.Terminate(t))
	require.Equal(t, 1, run(t.Context(), []string{"health", "--listen", address}, io.Discard, io.Discard))
}
