package request

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// MaxUsers is the number of users that one request or frame can name.
const MaxUsers = 1000

// CheckUsers returns an error if there are more than max users, or invalid ones.
func CheckUsers(users []string, max int) error {
	if len(users) > max {
		return problem.Errorf(problem.TooManyItems,
			"There are %d users: send at most %d in one request.", len(users), max)
	}
	var bad problem.Items
	for i, user := range users {
		if err := lastseen.CheckUser(user); err != nil {
			bad.Add(i, problem.From(problem.InvalidUser, err))
		}
	}
	return bad.Err()
}

// Scalar is the text of a JSON string or number, which is read as a parameter of the same name is.
type Scalar string

// DecodeScalar decodes a scalar.
func DecodeScalar(d *jsontext.Decoder, s *Scalar) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if kind := token.Kind(); kind != '"' && kind != '0' {
		return WrongType(d, token, "a string or a number")
	}
	*s = Scalar(token.String())
	return nil
}

// Timestamp is an instant in a response: RFC 3339, or null if it is 0.
type Timestamp lastseen.Instant

// MarshalJSONTo writes the instant; see [json.MarshalerTo].
func (t Timestamp) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(t.AppendJSON(make([]byte, 0, 32)))
}

// AppendJSON appends the instant as JSON.
func (t Timestamp) AppendJSON(b []byte) []byte {
	if t == 0 {
		return append(b, "null"...)
	}
	return append(lastseen.Instant(t).Append(append(b, '"')), '"')
}

// AppendString appends a JSON string. Names are valid UTF-8.
func AppendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // fails for invalid UTF-8 only
	return b
}
