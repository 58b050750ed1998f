package main

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// certificatePause is the time between two reads of the files of a certificate. Reading instead of watching them sees
// every way of replacing them, such as the links that Kubernetes swaps, and costs next to nothing.
const certificatePause = 10 * time.Second

// certificate is the certificate of the server for TLS and its private key: two files that can be replaced while the
// server runs.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	failure           string // of the last read, so that it is logged once
}

// openCertificate returns the certificate that the settings name; nil if none is set.
func openCertificate(c *config.Config, logger *slog.Logger) (*certificate, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	opened := &certificate{certFile: c.TLSCert, keyFile: c.TLSKey, logger: logger}
	return opened, opened.read()
}

// read reads the files and uses them from now on. After an error the certificate in use stays.
func (c *certificate) read() error {
	pair, err := config.ReadCertificate(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	if old := c.current.Load(); old != nil && slices.EqualFunc(old.Certificate, pair.Certificate, bytes.Equal) {
		return nil // the key is the same, too: it matches the certificate
	}
	c.current.Store(&pair)
	c.logger.Info("certificate read", "file", c.certFile, "names", pair.Leaf.DNSNames, "until", pair.Leaf.NotAfter)
	return nil
}

// refresh reads the files again; it does nothing without TLS. It logs an error once, not at each read until it is
// mended: while one file is replaced and the other is not, they do not match. It must not be called concurrently.
func (c *certificate) refresh() {
	if c == nil {
		return
	}
	failure := ""
	if err := c.read(); err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != c.failure {
		c.logger.Error("certificate not replaced: the old one stays in use",
			"error", failure, "cert", c.certFile, "key", c.keyFile)
	}
	c.failure = failure
}

// config returns the TLS configuration of the server.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
