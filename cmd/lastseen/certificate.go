package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// certificatePause is the time between two looks at the files of a certificate. They are read, rather than
// watched for: that sees every way of replacing them, such as the links that Kubernetes swaps, and costs nothing.
const certificatePause = 10 * time.Second

// certificate is what the server shows to clients over TLS, and its private key: a pair of files that others
// renew while the server runs. Its methods may be called concurrently; all do nothing if it is nil.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	mu        sync.Mutex
	cert, key []byte // what is current
	failure   string // of the last time, so that it is logged once
}

// openCertificate returns the certificate that the settings name; nil if none is set.
func openCertificate(c *config.Config, logger *slog.Logger) (*certificate, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	opened := &certificate{certFile: c.TLSCert, keyFile: c.TLSKey, logger: logger}
	return opened, opened.read()
}

// read reads the files, and takes over what they hold if it differs and is right. Otherwise clients go on to
// see what they saw.
func (c *certificate) read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert, err := config.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.certFile, err)
	}
	key, err := config.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.keyFile, err)
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.cert, c.key = cert, key
	c.current.Store(&pair)
	c.logger.Info("certificate read", "file", c.certFile, "names", pair.Leaf.DNSNames, "until", pair.Leaf.NotAfter)
	return nil
}

// refresh reads the files again. It logs what is wrong once, not each time until it is mended: between the
// writing of one file and the other they may well not fit.
func (c *certificate) refresh() {
	if c == nil {
		return
	}
	failure := ""
	if err := c.read(); err != nil {
		failure = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if failure != "" && failure != c.failure {
		c.logger.Error("certificate not replaced: the old one stays in use", "error", failure, "cert", c.certFile, "key", c.keyFile)
	}
	c.failure = failure
}

// run refreshes until the context ends.
func (c *certificate) run(ctx context.Context, pause func(context.Context, time.Duration)) {
	if c == nil {
		return
	}
	for {
		pause(ctx, certificatePause)
		if ctx.Err() != nil {
			return
		}
		c.refresh()
	}
}

// config returns how the server speaks TLS.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
