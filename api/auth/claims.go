package auth

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/lastseen/lastseen"
)

// maxDate is the last second of the year 9999. Much later dates overflow: a token for the year 292 billion would be
// valid now.
const maxDate = 253402300799

// checkDepth returns an error if the header or the claims of a token have too many levels, before they are parsed.
func checkDepth(token string) error {
	parts := strings.Split(token, ".")
	for _, part := range parts[:len(parts)-1] {
		text, _ := base64.RawURLEncoding.DecodeString(part) // the parser reports other mistakes
		if err := lastseen.CheckJSON(text, math.MaxInt); err != nil {
			return fmt.Errorf("the token has %w", err)
		}
	}
	return nil
}

// claims are the claims of a token. They are parsed strictly: a duplicate name, or one in another case, could mean one
// thing to the issuer and another one here.
type claims struct{ jwt.MapClaims }

// UnmarshalJSON parses the claims; see [encoding/json.Unmarshaler].
func (c *claims) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &c.MapClaims); err != nil {
		return err
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		if seconds, isNumber := c.MapClaims[name].(float64); isNumber && !(seconds >= 0 && seconds <= maxDate) {
			return fmt.Errorf("the claim %s is not a time in seconds between 1970 and the year 9999", name)
		}
	}
	return nil
}
