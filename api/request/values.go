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
	return CheckEach(users, lastseen.CheckUser)
}

// CheckEach returns an error unless all users pass a check.
func CheckEach(users []string, check func(string) error) error {
	var bad problem.Items
	for i, user := range users {
		if err := check(user); err != nil {
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

// App is a JSON value that clients store with a call; empty for none.
type App string

// MarshalJSONTo writes the value, or null for none; see [json.MarshalerTo].
func (a App) MarshalJSONTo(e *jsontext.Encoder) error {
	if value := jsontext.Value(a); value.IsValid() {
		return e.WriteValue(value)
	}
	return e.WriteToken(jsontext.Null)
}

// DecodeApp returns what decodes any JSON value of at most some bytes without spaces; null as none.
func DecodeApp(maximum int) func(*jsontext.Decoder, *App) error {
	return func(d *jsontext.Decoder, app *App) error { return decodeApp(d, app, maximum) }
}

func decodeApp(d *jsontext.Decoder, app *App, maximum int) error {
	value, err := d.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return err
	}
	value = value.Clone()
	if err := value.Compact(); err != nil {
		return err
	}
	if len(value) > maximum {
		return problem.Errorf(problem.InvalidCall,
			"app has %d bytes: at most %d are allowed.", len(value), maximum)
	}
	if err := CheckNumbers("app", value, problem.InvalidCall); err != nil {
		return err
	}
	*app = App(value)
	return nil
}

// Optional returns a string in a response; nil, which is null, for an empty one.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
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
