package topologies

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// writeCertificate writes a certificate for the name redis.test, which signs for itself and serves both
// sides, and its key.
func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lastseen test"}, DNSNames: []string{"redis.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// freePort is a port of this machine that no other test uses.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(redistest.FreeAddr(t, "127.0.0.1"))
	require.NoError(t, err)
	return port
}

// TestTLS: the server is verified, and verifies us.
func TestTLS(t *testing.T) {
	cert, key := writeCertificate(t)
	port := freePort(t)
	redistest.StartProcess(t, "--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert,
		"--tls-key-file", key)
	us := "&tls-cert=" + cert + "&tls-key=" + key
	for options, works := range map[string]bool{
		"?tls-ca=" + cert + "&tls-server-name=redis.test" + us: true,
		"?tls-insecure-skip-verify=true" + us:                  true,

		"?tls-ca=" + cert + us:                            false, // it is not 127.0.0.1
		"?tls-server-name=redis.test" + us:                false, // its issuer is unknown
		"?tls-ca=" + cert + "&tls-server-name=redis.test": false, // nor for us
		"?tls-ca=" + cert + "&tls-server-name=other" + us: false,
	} {
		s := stores.New(t, redisstore.Options{URL: "rediss://127.0.0.1:" + port + options})
		err := stores.Ping(s, "chat", "alice")
		if works {
			require.NoError(t, err, options)
			continue
		}
		require.ErrorIs(t, err, store.ErrUnavailable, options)
		require.NotContains(t, err.Error(), "redis://", "it has TLS")
	}
}

// TestTLSOfCluster: also the nodes that the URL does not name are asked over TLS.
func TestTLSOfCluster(t *testing.T) {
	cert, key := writeCertificate(t)
	var port string
	redistest.StartCluster(t, 0, func() []string {
		port = freePort(t)
		return []string{
			"--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key,
			"--cluster-announce-port", port, // as a Cluster with tls-cluster does
		}
	})
	options := "?tls-server-name=redis.test&tls-ca=" + cert + "&tls-cert=" + cert + "&tls-key=" + key
	o := redisstore.Options{URL: "rediss+cluster://127.0.0.1:" + port + options, Shards: 16}
	stores.RequireAll(t, stores.New(t, o))
}

// TestTLSOfSentinel: Sentinel and primary are both asked over TLS.
func TestTLSOfSentinel(t *testing.T) {
	cert, key := writeCertificate(t)
	port, sentinelPort := freePort(t), freePort(t)
	redistest.StartProcess(t, "--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert,
		"--tls-key-file", key)
	redistest.StartOneSentinel(t, "127.0.0.1:"+port, "tls-port "+sentinelPort, "tls-replication yes",
		"tls-ca-cert-file "+cert, "tls-cert-file "+cert, "tls-key-file "+key)
	options := "&tls-server-name=redis.test&tls-ca=" + cert + "&tls-cert=" + cert + "&tls-key=" + key
	url := "rediss+sentinel://127.0.0.1:" + sentinelPort + "?master=" + redistest.MasterName + options
	stores.RequireAll(t, stores.New(t, redisstore.Options{URL: url}))
}
