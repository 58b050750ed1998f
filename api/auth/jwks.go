package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
)

const (
	refreshPause = 10 * time.Minute // between two fetches of a key set
	retryPause   = 10 * time.Second // after a failed fetch, and between fetches for missing keys
	fetchTimeout = 5 * time.Second
	fetchWait    = 3 * time.Second // how long a request waits for a fetch
	maxKeySet    = 1 << 20         // bytes
)

// publicKey is a key that verifies tokens.
type publicKey struct {
	id        string // can be empty
	algorithm string // the only one that the key is used with
	key       crypto.PublicKey
}

// matching returns the keys for an algorithm, and with an ID unless that is empty.
func matching(keys []publicKey, id, algorithm string) (set jwt.VerificationKeySet) {
	for _, k := range keys {
		if k.algorithm == algorithm && (id == "" || k.id == id) {
			set.Keys = append(set.Keys, k.key)
		}
	}
	return set
}

// keySet is a key set (JWKS) that an issuer publishes. It is fetched in the background, and when a token names a
// missing key. If a fetch fails or returns no usable key, the known keys stay valid.
type keySet struct {
	url     string // can contain a password, so logs have only the host
	host    string
	client  *http.Client
	logger  *slog.Logger
	now     func() time.Time
	close   func() // ends background work
	refresh func() (any, error)
	fetches singleflight.Group // of refresh

	keys    atomic.Pointer[[]publicKey]
	changes atomic.Int64      // of the keys
	hash    [sha256.Size]byte // of the content that the keys were parsed from; it and the following belong to refresh
	err     error             // of the last fetch
	fetched time.Time         // when the last fetch started
}

func newKeySet(address string, o Options) (*keySet, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the key set is not an https:// or http:// URL")
	}
	s := &keySet{
		url: address, host: u.Host, logger: o.Logger, now: o.Now,
		client: &http.Client{Timeout: fetchTimeout, Transport: o.Transport, CheckRedirect: noRedirect},
	}
	s.keys.Store(&[]publicKey{})
	if p := o.Previous; p.TakesTokens() && p.tokens.set != nil && p.tokens.set.url == address {
		s.keys.Store(p.tokens.set.keys.Load())
	}
	ctx, stop := context.WithCancel(context.Background())
	s.refresh = func() (any, error) { return nil, s.refreshOnce(ctx) }
	var polling sync.WaitGroup
	polling.Go(func() { s.poll(ctx) })
	s.close = func() {
		stop()
		polling.Wait()
	}
	return s, nil
}

// noRedirect follows no redirects: only the configuration decides where keys come from.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// version returns a number that changes when the keys change; 0 without a set.
func (s *keySet) version() int64 {
	if s == nil {
		return 0
	}
	return s.changes.Load()
}

// find returns the keys for an algorithm, or only those with the ID that a token names. If no key matches, it fetches
// the set again, but not too often: anyone can send tokens with unknown IDs.
func (s *keySet) find(ctx context.Context, id, algorithm string) (jwt.VerificationKeySet, error) {
	if found := matching(*s.keys.Load(), id, algorithm); len(found.Keys) > 0 {
		return found, nil
	}
	if err := s.refetch(ctx); err != nil {
		return jwt.VerificationKeySet{}, fmt.Errorf("%w: %w", ErrKeysUnavailable, err)
	}
	return matching(*s.keys.Load(), id, algorithm), nil
}

// refetch fetches the set, unless it just was, and waits up to fetchWait. It returns the error of the last fetch.
func (s *keySet) refetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	select {
	case last := <-s.fetches.DoChan("", s.refresh):
		return last.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll fetches the set from time to time, until the context ends.
func (s *keySet) poll(ctx context.Context) {
	for {
		pause := refreshPause
		if err := s.refetch(ctx); err != nil { // refreshOnce logs it
			pause = retryPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// refreshOnce fetches the set if the last fetch was a while ago, and returns the error of the last one. It logs the
// first failure and the first success after failures. It must not be called concurrently.
func (s *keySet) refreshOnce(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return errors.New("the key set is no longer in use")
	case s.now().Sub(s.fetched) < retryPause:
		return s.err
	}
	s.fetched = s.now()
	content, err := s.fetch(ctx)
	var keys []publicKey
	if err == nil {
		keys, err = parseKeySet(content)
	}
	switch {
	case err != nil && s.err == nil && ctx.Err() == nil:
		s.logger.Error("the key set for tokens cannot be fetched; trying again", "issuer", s.host, "error", err)
	case err == nil && s.err != nil:
		s.logger.Info("the key set for tokens can be fetched again", "issuer", s.host)
	}
	if hash := sha256.Sum256(content); err == nil && hash != s.hash {
		s.hash = hash
		s.keys.Store(&keys)
		s.changes.Add(1)
	}
	s.err = err
	return err
}

func (s *keySet) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
		err = failed.Err
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response is %s", response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxKeySet:
		return nil, fmt.Errorf("the response has more than %d bytes", maxKeySet)
	}
	return content, nil
}

// parseKeySet returns the usable keys of a JWK set, at least one. The set can also hold keys for encryption and for
// other algorithms. If no key is usable, the error says why the first one is not.
func parseKeySet(content []byte) ([]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("the response is not a key set: %w", err)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("the response is not a key set: it has no keys")
	}
	var keys []publicKey
	var first error
	for _, entry := range set.Keys {
		key, err := parseKey(entry)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys can be used, and those fetched before stay valid; the first: "+
			"%.200w",
			len(set.Keys), first)
	}
	return keys, nil
}

// parseKey returns a key of a JWK set, or why it is not usable.
func parseKey(entry []byte) (publicKey, error) {
	parsed, err := jwkset.NewJWKFromRawJSON(entry, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return publicKey{}, err
	}
	meta := parsed.Marshal()
	algorithm, err := algorithmOf(parsed.Key())
	switch {
	case err != nil:
		return publicKey{}, err
	case meta.USE != "" && meta.USE != jwkset.UseSig:
		return publicKey{}, fmt.Errorf("its use is %.20q, not sig", meta.USE)
	case meta.ALG != "" && meta.ALG.String() != algorithm:
		return publicKey{}, fmt.Errorf("its alg is %.20q, not %s", meta.ALG, algorithm)
	}
	return publicKey{meta.KID, algorithm, parsed.Key()}, nil
}
