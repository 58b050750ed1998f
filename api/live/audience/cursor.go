package audience

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// A cursor of a [Watcher] is sealed: positions in a feed, and who was shown, are nothing that its holder may read. It
// is the ID of the secret, a salt, and ciphertext of a width that depends only on how many users are watched. The key
// is derived from the secret and the salt, so that no key is used twice.
const (
	keyIDLen    = 4
	saltLen     = 16
	positionLen = 64 // of a position with its length; those of stores are shorter
	shownLen    = 64 // of which there are as many as it takes to have a bit for each user
)

// shownWidth returns how many bytes have a bit for each of some users.
func shownWidth(users int) int { return (users + 8*shownLen - 1) / (8 * shownLen) * shownLen }

// maxCursorAge is how old a cursor can be. Entries of a feed are kept for a little longer, so that whether a cursor is
// too old does not show how active others are.
const maxCursorAge = 9 * time.Minute

// cursorState is what a cursor holds.
type cursorState struct {
	asOf      lastseen.Instant
	list      [8]byte          // a hash of the users watched
	shown     []byte           // a bit for each of them, in bytewise order: the client was sent a presence
	positions []store.Position // in the feed
}

// encode returns the state in fixed widths.
func (p cursorState) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.asOf))
	b = append(append(b, p.list[:]...), p.shown...)
	for _, position := range p.positions {
		width := (len(position) + positionLen) / positionLen * positionLen
		field := make([]byte, width)
		field[0] = byte(len(position))
		copy(field[1:], position)
		b = append(b, field...)
	}
	return b
}

// decode returns the state of a list of users. The text is authentic.
func decode(b []byte, users int) (p cursorState, ok bool) {
	bits := shownWidth(users)
	if len(b) < 16+bits {
		return p, false
	}
	p.asOf = lastseen.Instant(binary.BigEndian.Uint64(b))
	copy(p.list[:], b[8:])
	p.shown, b = b[16:16+bits], b[16+bits:]
	for len(b) >= positionLen {
		n := int(b[0])
		width := (n + positionLen) / positionLen * positionLen
		if width > len(b) {
			return p, false
		}
		p.positions, b = append(p.positions, store.Position(b[1:1+n])), b[width:]
	}
	return p, len(b) == 0
}

// secrets keeps the secret of a store in memory. Its methods may be called concurrently.
type secrets struct {
	mu     sync.Mutex
	known  secret // zero until it was read
	readAt time.Time
}

type secret struct {
	id  [keyIDLen]byte
	key [32]byte
}

// newest returns the secret. It reads it if it is not known, or if a cursor has another ID; if it cannot read it again,
// it returns the one that is known.
func (s *secrets) newest(ctx context.Context, from store.Secrets, cursor []byte) (secret, error) {
	known, due := s.look(cursor)
	if !due {
		return known, nil
	}
	key, err := from.Secret(ctx)
	switch {
	case err == nil:
		sum := sha256.Sum256(append([]byte("id\x00"), key[:]...))
		known = secret{[keyIDLen]byte(sum[:]), key}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known = known
	case known != secret{}:
		err = nil
	}
	return known, err
}

// look returns the secret that is known, and whether to read it.
func (s *secrets) look(cursor []byte) (known secret, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != (secret{}) {
		other := len(cursor) >= keyIDLen && [keyIDLen]byte(cursor) != s.known.id
		if !other || time.Since(s.readAt) < time.Second { // anyone can make up another ID
			return s.known, false
		}
	}
	s.readAt = time.Now()
	return s.known, true
}

// aead returns the cipher for a salt. Its key is used for one text, so the nonce is always the same.
func (s secret) aead(salt []byte) (aead cipher.AEAD, nonce []byte) {
	key, err := hkdf.Key(sha256.New, s.key[:], salt, "lastseen cursor", 32)
	if err != nil {
		panic(err) // the length is too large for HKDF
	}
	block, err := aes.NewCipher(key)
	if err == nil {
		aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // the length is none of AES
	}
	return aead, make([]byte, aead.NonceSize())
}

// seal returns a state as text, bound to what it is for.
func (s secret) seal(p cursorState, bound string) store.Position {
	b := make([]byte, keyIDLen+saltLen, 1024)
	copy(b, s.id[:])
	_, _ = rand.Read(b[keyIDLen:]) // it never fails
	aead, nonce := s.aead(b[keyIDLen:])
	return store.Position(base64.RawURLEncoding.EncodeToString(aead.Seal(b, nonce, p.encode(), []byte(bound))))
}

// open returns the state in a text, which is hostile input.
func (s secret) open(sealed []byte, bound string, users int) (p cursorState, ok bool) {
	if len(sealed) < keyIDLen+saltLen || [keyIDLen]byte(sealed) != s.id {
		return p, false
	}
	aead, nonce := s.aead(sealed[keyIDLen : keyIDLen+saltLen])
	b, err := aead.Open(nil, nonce, sealed[keyIDLen+saltLen:], []byte(bound))
	if err != nil {
		return p, false
	}
	return decode(b, users)
}
