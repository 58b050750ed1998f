package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	tryTimeout    = 15 * time.Second
	maxResponse   = 4 << 10 // bytes of a response that are read
	maxHeader     = 64 << 10
	maxRetryAfter = time.Hour
	idleTimeout   = 90 * time.Second
)

// Result is what came of one request.
type Result string

// The results.
const (
	Delivered Result = "delivered" // 2xx
	Failed    Result = "failed"    // no response, or one after which the event is sent again
	TooLarge  Result = "too_large" // 413
	Refused   Result = "refused"   // another 4xx: the event is dropped
	Gone      Result = "gone"      // 410: the webhook is disabled
)

// errLinkLocal means that a receiver has an address that only the machine's own surroundings use, such as the service
// with credentials of a cloud.
var errLinkLocal = errors.New("link-local addresses are refused")

// NewTransport returns a transport for a webhook. It uses no proxy, and connects to no link-local address, whatever the
// name resolves to.
func NewTransport(w *Webhook) http.RoundTripper {
	dialer := &net.Dialer{Timeout: tryTimeout, Control: refuseLinkLocal}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: w.RootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, MaxConnsPerHost: maxRequests, MaxIdleConnsPerHost: maxRequests,
		IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: tryTimeout, MaxResponseHeaderBytes: maxHeader,
		DisableCompression: true,
	}
}

// refuseLinkLocal is called for each address before a connection to it.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := addr.Addr().Unmap()
	if b := ip.As16(); nat64().Contains(ip) { // such networks translate to an address of IPv4
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return errLinkLocal
	}
	return nil
}

// nat64 is the well-known prefix of RFC 6052.
func nat64() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }

// client sends requests of a webhook.
type client struct {
	http.Client
}

func newClient(transport http.RoundTripper) *client {
	return &client{Client: http.Client{
		Transport: transport, Timeout: tryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is what a receiver said to a request.
type answer struct {
	Result
	retryAfter time.Duration // that it asked for; 0 if it did not
	reason     error         // for the log, without the URL; nil if delivered
}

// why returns the reason; "" if delivered.
func (a answer) why() string {
	if a.reason == nil {
		return ""
	}
	return a.reason.Error()
}

// try sends an event once.
func (c *client) try(ctx context.Context, w *Webhook, e event) answer {
	now := time.Now() // receivers compare it with their own
	signature, err := sign(w.Secrets, e.ID, now, e.Body)
	if err != nil {
		return answer{Result: Failed, reason: err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL.String(), bytes.NewReader(e.Body))
	if err != nil {
		return answer{Result: Failed, reason: errors.New("the URL cannot be used")}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "lastseen")
	r.Header.Set(standardwebhooks.HeaderWebhookID, e.ID)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	response, err := c.Do(r)
	if err != nil {
		return answer{Result: Failed, reason: reasonOf(err)}
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse) // so that the connection can be used again
	return classify(response)
}

// classify returns what a response means.
func classify(r *http.Response) answer {
	a := answer{reason: fmt.Errorf("the receiver answered %d", r.StatusCode)}
	switch code := r.StatusCode; {
	case code >= 200 && code < 300:
		return answer{Result: Delivered}
	case code == http.StatusRequestEntityTooLarge:
		a.Result = TooLarge
	case code == http.StatusGone:
		a.Result = Gone
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests,
		code < 400, code >= 500:
		a.Result, a.retryAfter = Failed, retryAfter(r.Header.Get("Retry-After"), time.Now())
	default:
		a.Result = Refused
	}
	return a
}

// retryAfter returns how long a receiver wants to be left alone: up to an hour, and 0 if it does not say.
func retryAfter(header string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// reasonOf returns why there is no response, for the log. The text of an error can have the URL or parts of a response,
// both of which can be secrets, so it says only what is known to have neither.
func reasonOf(err error) error {
	var timeout net.Error
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var system syscall.Errno
	switch {
	case errors.Is(err, errLinkLocal):
		return errLinkLocal
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no response in time")
	case errors.As(err, &dns):
		return errors.New("the name of the receiver cannot be resolved")
	case errors.As(err, &certificate):
		return errors.New("the certificate of the receiver is not valid")
	case errors.As(err, &system):
		return system
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the receiver closed the connection")
	}
	return errors.New("the response is not valid")
}
