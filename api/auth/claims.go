package auth

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"
)

// maxDate is the last second of the year 9999. Much later dates overflow: a token for the year 292 billion would be
// valid now.
const maxDate = 253402300799

// claims are the claims of a token. They are parsed strictly: a duplicate name, or one in another case, could mean one
// thing to the issuer and another one here.
type claims struct{ jwt.MapClaims }

// UnmarshalJSON parses the claims; see [encoding/json.Unmarshaler].
func (c *claims) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &c.MapClaims) }

// GetExpirationTime returns the claim exp, nil if it is missing; see [jwt.Claims].
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) {
	return c.date("exp", jwt.MapClaims.GetExpirationTime)
}

// GetNotBefore returns the claim nbf, nil if it is missing; see [jwt.Claims].
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) {
	return c.date("nbf", jwt.MapClaims.GetNotBefore)
}

// GetIssuedAt returns the claim iat, nil if it is missing; see [jwt.Claims].
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) {
	return c.date("iat", jwt.MapClaims.GetIssuedAt)
}

// date returns a claim that is a time: seconds between 1970 and the year 9999.
func (c *claims) date(name string, get func(jwt.MapClaims) (*jwt.NumericDate, error)) (*jwt.NumericDate, error) {
	if seconds, isNumber := c.MapClaims[name].(float64); isNumber && !(seconds >= 0 && seconds <= maxDate) {
		return nil, fmt.Errorf("the claim %s is not a time in seconds between 1970 and the year 9999", name)
	}
	return get(c.MapClaims)
}
