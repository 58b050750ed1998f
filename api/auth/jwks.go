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
)

const (
	refreshPause = 10 * time.Minute // between two fetches of a key set
	retryPause   = 10 * time.Second // after a fetch that failed, and between fetches for keys that are missing
	fetchTimeout = 5 * time.Second
	patience     = 3 * time.Second // for how long a request waits for a fetch
	maxKeySet    = 1 << 20         // bytes
)

// publicKey is one that may have signed a token.
type publicKey struct {
	id        string // none if it has none
	algorithm string // the one that it is used with
	key       crypto.PublicKey
}

// matching returns the keys for an algorithm; of those with an ID, if one is asked for.
func matching(keys []publicKey, id, algorithm string) (set jwt.VerificationKeySet) {
	for _, k := range keys {
		if k.algorithm == algorithm && (id == "" || k.id == id) {
			set.Keys = append(set.Keys, k.key)
		}
	}
	return set
}

// keySet is what an issuer publishes its keys in. It is fetched in the background, and when a token names a key
// that is missing. While the issuer does not answer, or publishes no key that can be used, the keys that are known go
// on being good.
type keySet struct {
	url    string // which may hold a password, so that logs name the host only
	host   string
	client *http.Client
	logger *slog.Logger
	now    func() time.Time
	stop   context.CancelFunc
	begin  func() // fetches, in the background; called with the lock
	work   sync.WaitGroup

	changes atomic.Int64 // of the keys
	mu      sync.Mutex
	keys    []publicKey
	hash    [sha256.Size]byte // of what the keys were read from
	err     error             // of the newest fetch
	fetched time.Time         // when the newest fetch began
	running chan struct{}     // closed when the fetch that runs has ended; nil if none runs
	closed  bool              // no fetch begins any more
}

func newKeySet(address string, o Options) (*keySet, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the key set is not an https:// or http:// URL")
	}
	s := &keySet{
		url: address, host: u.Host, logger: o.Logger, now: o.Now,
		client: &http.Client{Timeout: fetchTimeout, Transport: o.Transport, CheckRedirect: stay},
	}
	if f := o.Former; f.TakesTokens() && f.tokens.set != nil && f.tokens.set.url == address {
		s.keys, _ = f.tokens.set.known()
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.begin = func() {
		s.running, s.fetched = make(chan struct{}), s.now()
		s.work.Go(func() { s.refresh(ctx) })
	}
	s.mu.Lock()
	s.begin()
	s.mu.Unlock()
	s.work.Go(func() { s.keepFresh(ctx) })
	return s, nil
}

// stay follows no redirect: where the keys are is configured, and nobody else's say.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (s *keySet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// known returns the keys, and the error of the newest fetch.
func (s *keySet) known() ([]publicKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys, s.err
}

// version returns another number whenever the keys change. That of no set is 0.
func (s *keySet) version() int64 {
	if s == nil {
		return 0
	}
	return s.changes.Load()
}

// find returns the keys for an algorithm, by their ID if there is one. If there are none, the set is fetched
// again, but not too often: IDs come from whoever sends tokens.
func (s *keySet) find(ctx context.Context, id, algorithm string) (jwt.VerificationKeySet, error) {
	keys, _ := s.known()
	if found := matching(keys, id, algorithm); len(found.Keys) > 0 {
		return found, nil
	}
	if err := s.newest(ctx); err != nil {
		return jwt.VerificationKeySet{}, fmt.Errorf("%w: %w", ErrKeysUnavailable, err)
	}
	keys, _ = s.known()
	return matching(keys, id, algorithm), nil
}

// newest waits for the fetch that runs, after beginning one if the last was a while ago.
func (s *keySet) newest(ctx context.Context) error {
	s.mu.Lock()
	if s.running == nil && !s.closed && s.now().Sub(s.fetched) >= retryPause {
		s.begin()
	}
	running, closed := s.running, s.closed
	s.mu.Unlock()
	if closed {
		return errors.New("the key set is no longer in use")
	}
	if running != nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case <-running:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := s.known()
	return err
}

// keepFresh fetches the set from time to time, until the context ends.
func (s *keySet) keepFresh(ctx context.Context) {
	for {
		pause := refreshPause
		if err := s.newest(ctx); err != nil { // which the log is told of elsewhere
			pause = retryPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// refresh fetches the set once, and tells the log when that begins to fail or to succeed.
func (s *keySet) refresh(ctx context.Context) {
	content, err := s.fetch(ctx)
	var keys []publicKey
	if err == nil {
		keys, err = parseKeySet(content)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.err == nil && ctx.Err() == nil:
		s.logger.Error("the key set for tokens cannot be fetched; trying again", "issuer", s.host, "error", err)
	case err == nil && s.err != nil:
		s.logger.Info("the key set for tokens can be fetched again", "issuer", s.host)
	}
	if hash := sha256.Sum256(content); err == nil && hash != s.hash {
		s.keys, s.hash = keys, hash
		s.changes.Add(1)
	}
	s.err = err
	close(s.running)
	s.running = nil
}

func (s *keySet) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	var failed *url.Error // which repeats the URL
	if errors.As(err, &failed) {
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

// parseKeySet returns the keys of a JWK set that verify what we take, at least one. Others may stand beside them, for
// encryption or for other algorithms. If none can be used, the error says why the first one cannot.
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
		return nil, fmt.Errorf("none of its %d keys can be used, and those fetched before stay valid; the first: %.200w", len(set.Keys), first)
	}
	return keys, nil
}

// parseKey returns a key of a JWK set, or why it is not used.
func parseKey(entry []byte) (publicKey, error) {
	parsed, err := jwkset.NewJWKFromRawJSON(entry, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return publicKey{}, err
	}
	about := parsed.Marshal()
	algorithm, err := algorithmOf(parsed.Key())
	switch {
	case err != nil:
		return publicKey{}, err
	case about.USE != "" && about.USE != jwkset.UseSig:
		return publicKey{}, fmt.Errorf("its use is %.20q, not sig", about.USE)
	case about.ALG != "" && about.ALG.String() != algorithm:
		return publicKey{}, fmt.Errorf("its alg is %.20q, not %s", about.ALG, algorithm)
	}
	return publicKey{about.KID, algorithm, parsed.Key()}, nil
}
