package access

import (
	"crypto/sha256"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxRecent is how many tokens are remembered. They take some 30 MB.
const maxRecent = 1 << 16

// recent remembers whose the tokens are that were verified lately: a user sends the same one with every ping, and
// verifying it costs several times what the ping does. What is remembered is what verifying would say again, since
// only two things can change that: the token expires, or its issuer changes the keys. Tokens themselves are not kept.
type recent struct {
	tokens *lru.Cache[[sha256.Size]byte, verified]
}

// verified is what was found about a token.
type verified struct {
	caller  *Caller
	expires time.Time
	keys    int64 // the version of the keys by which it was verified
}

func newRecent() recent {
	tokens, _ := lru.New[[sha256.Size]byte, verified](maxRecent) // fails for a size that is not positive only
	return recent{tokens}
}

// find returns whose token it is by the hash; nil if that is to be verified.
func (r recent) find(hash [sha256.Size]byte, now time.Time, keys int64) *Caller {
	found, there := r.tokens.Get(hash)
	if !there || found.keys != keys || !now.Before(found.expires) {
		return nil
	}
	return found.caller
}
