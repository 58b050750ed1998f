package redisclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// redirects is how often a call to a Cluster may be redirected, not counting retries: while a slot moves to another
	// node, a call is redirected twice.
	redirects = 3
	// reloadEvery bounds how long calls go to a dead primary of a Cluster, which cannot redirect them.
	reloadEvery = 2 * time.Second
)

// newClient makes a client that fails fast: it reports a lost Redis within Options.Timeout, whatever the number of
// attempts. The guard sees all its commands.
func newClient(o Options, g *guard) (redis.UniversalClient, address, error) {
	a, common, err := commonOptions(o)
	if err != nil {
		return nil, a, err
	}
	common.Dialer = g.dialer(o.DialTimeout, common.TLSConfig)
	var client redis.UniversalClient
	switch a.topology {
	case sentinel:
		primary := newFailoverClient(o, a, common)
		g.attachSentinel(primary)
		return primary, a, nil
	case cluster:
		client = newClusterClient(o, common)
	default:
		client = redis.NewClient(common.Simple())
	}
	g.attach(client)
	return client, a, nil
}

// commonOptions returns the address in a store URL, and the options of a client for any topology.
func commonOptions(o Options) (a address, common *redis.UniversalOptions, err error) {
	if a, err = parseAddress(o.URL); err != nil {
		return a, nil, fmt.Errorf("invalid store URL: %w", err)
	}
	var encryption *tls.Config
	if err = a.checkOptions(); err == nil {
		encryption, err = a.tls(o.Logger)
	}
	if err != nil {
		return a, nil, fmt.Errorf("store URL %s: %w", a, err)
	}
	return a, &redis.UniversalOptions{
		Addrs: a.hosts, DB: a.database, Username: a.user, Password: a.password, TLSConfig: encryption,
		DialTimeout: o.DialTimeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, MinIdleConns: o.MinIdleConns, PoolTimeout: o.Timeout / 2,
		PipelinePoolSize: -1, // a single pool, of the configured size
		MaxRetries:       o.MaxRetries, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// errHandshake means that a server was reached, but not by TLS.
var errHandshake = errors.New("the TLS handshake failed")

// dialer returns a function that connects to a server. It logs failed handshakes.
func (g *guard) dialer(
	timeout time.Duration, encryption *tls.Config,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	if encryption == nil {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if plain, ok := conn.(*net.TCPConn); ok {
				return &plainConn{TCPConn: plain, timeout: timeout}, nil
			}
			return conn, err
		}
	}
	secure := &tls.Dialer{NetDialer: dialer, Config: encryption}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := secure.DialContext(ctx, network, addr)
		var connecting *net.OpError
		switch {
		case err == nil:
			g.log.LogOnce(slog.LevelInfo, addr, "tls", "", "")
		case errors.Is(err, context.Canceled), errors.As(err, &connecting) && connecting.Op == "dial":
		default:
			err = fmt.Errorf("%w with %s%s: %w", errHandshake, addr, handshakeAdvice(err), err)
			g.log.LogOnce(slog.LevelError, addr, "tls", "failed", "cannot connect to Redis", "error", err)
		}
		return conn, err
	}
}

// handshakeAdvice says what to do about a failed handshake with a server that may have no TLS: such a server responds
// with something else, or waits for the end of a line.
func handshakeAdvice(err error) string {
	_, isOther := errors.AsType[tls.RecordHeaderError](err)
	var timeout net.Error
	if isOther || errors.As(err, &timeout) && timeout.Timeout() {
		return ": if this Redis has no TLS, begin --store with redis://"
	}
	return ""
}

// plainConn is a connection without TLS. A server that speaks only TLS closes it without a reply, as one that stops
// does. Its type stays visible to the pool, which looks for closed connections.
type plainConn struct {
	*net.TCPConn
	timeout time.Duration // of a handshake
	replied bool
}

// errSpeaksTLS is put in front of another error by two verbs %w: the client removes a single one with its text.
var errSpeaksTLS = errors.New("this Redis speaks TLS: begin --store with rediss://")

// Read implements [net.Conn]. If the server closes the connection without a reply, the error says if it speaks TLS.
func (c *plainConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.replied = c.replied || n > 0
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	if !c.replied && closed && speaksTLS(c.RemoteAddr().String(), c.timeout) {
		err = fmt.Errorf("%w: %w", errSpeaksTLS, err)
	}
	return n, err
}

// speaksTLS reports whether a server answers a handshake, with any certificate, or refuses it by an alert of TLS.
func speaksTLS(addr string, timeout time.Duration) bool {
	anyone := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is sent
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", addr, anyone)
	if err == nil {
		_ = conn.Close()
		return true
	}
	alert, refused := errors.AsType[*net.OpError](err)
	return refused && alert.Op == "remote error"
}

// OpenReplica makes a client of one replica, for calls that take at most a timeout. It tries nothing twice: the
// primary answers what a replica does not.
func OpenReplica(o Options, addr string, timeout time.Duration) (*redis.Client, error) {
	quiet := o
	quiet.Logger = slog.New(slog.DiscardHandler) // the client of the primary has logged what there is
	_, common, err := commonOptions(quiet)
	if err != nil {
		return nil, err
	}
	common.Addrs, common.MaxRetries, common.MinIdleConns = []string{addr}, -1, 0
	common.ReadTimeout, common.WriteTimeout, common.PoolTimeout = timeout, timeout, timeout
	common.DialTimeout = min(o.DialTimeout, timeout)
	return redis.NewClient(common.Simple()), nil
}

// newFailoverClient makes a client that asks Sentinels for the primary whenever it connects.
func newFailoverClient(o Options, a address, common *redis.UniversalOptions) *redis.Client {
	f := common.Failover()
	f.MasterName = a.options.Get(optMaster)
	f.SentinelUsername, f.SentinelPassword = a.options.Get(optSentinelUser), a.options.Get(optSentinelPassword)
	// Connecting begins with asking a Sentinel. When the last used one hangs, four attempts time out before all of them
	// are asked; callers do not wait for that.
	f.DialTimeout = o.DialTimeout + 5*o.Timeout
	return redis.NewFailoverClient(f)
}

// newClusterClient makes a client that sends each command to the primary of its key's slot.
func newClusterClient(o Options, common *redis.UniversalOptions) *redis.ClusterClient {
	c := common.Cluster()
	c.MaxRedirects = redirects + max(0, o.MaxRetries)
	c.MaxRetries = 0 // redirects include retries
	c.ClusterStateReloadInterval = reloadEvery
	c.DisableRoutingPolicies = true // they ask for COMMAND, outside the call's timeout; all our commands have one key
	client := redis.NewClusterClient(c)
	client.AddHook(repeatHook{max(0, o.MaxRetries)}) // before all others, which see what it repeats
	return client
}

// tls returns the TLS configuration; nil without TLS. Without a server name each server must present a certificate for
// the host at which it was found.
func (a address) tls(logger *slog.Logger) (*tls.Config, error) {
	if !a.encrypt {
		return nil, nil //nolint:nilnil // TLS is optional
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.options.Get(optServerName)}
	if file := a.options.Get(optCA); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", optCA, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: found no certificate in %s", optCA, file)
		}
	}
	if a.options.Has(optCert) != a.options.Has(optTLSKey) {
		return nil, fmt.Errorf("%s and %s belong together", optCert, optTLSKey)
	}
	if file := a.options.Get(optCert); file != "" {
		certificate, err := tls.LoadX509KeyPair(file, a.options.Get(optTLSKey))
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", optCert, optTLSKey, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	switch a.options.Get(optInsecure) {
	case "", "false":
	case "true":
		config.InsecureSkipVerify = true //nolint:gosec // only if requested, and logged
		logger.Warn("Redis' certificates are not verified: anyone on the network path can read and change everything",
			"store", a.String())
	default:
		return nil, errors.New(optInsecure + " must be true or false")
	}
	return config, nil
}
