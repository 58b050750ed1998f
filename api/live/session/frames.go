package session

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/connections"
)

// The names of frames: those that clients send, and those of batches from the server.
const (
	frameHello    = "hello"
	frameWatch    = "watch"
	frameActivity = "activity"
	frameToken    = "token"
	frameLeave    = "leave"
	frameTyping   = "typing"

	frameChanges = "changes"
	frameReset   = "reset"
)

// clientFrame is a frame from a client.
type clientFrame struct {
	name    string
	id      string         // as JSON, to be repeated in the response; empty for none
	content jsontext.Value // part of the text that it was read from
}

// parseFrame parses a frame: a JSON object with one name, and possibly "id".
func parseFrame(text []byte) (f clientFrame, err error) {
	err = request.Unmarshal(text, &f, strict)
	if err == nil && f.name == "" {
		err = problem.New(problem.InvalidJSON, "The frame has no name, such as {\"hello\":{}}.")
	}
	return f, err
}

// decodeFrameField reads the value of a name of a frame.
func decodeFrameField(d *jsontext.Decoder, f *clientFrame, name string) error {
	value, err := d.ReadValue()
	switch {
	case err != nil:
		return err
	case name != "id" && f.name != "":
		return problem.New(problem.InvalidJSON, "The frame has more than one name besides id.")
	case name != "id":
		f.name, f.content = name, value.Clone()
		return nil
	case value.Kind() != '"' && value.Kind() != '0' || len(value) > maxFrameID:
		return problem.Errorf(problem.InvalidJSON, "id is not a string or a number of at most %d bytes.", maxFrameID)
	}
	f.id = string(value)
	return nil
}

// decode decodes the content of a frame.
func (f clientFrame) decode(v any) error {
	if f.content.Kind() != '{' {
		return problem.Errorf(problem.InvalidJSON, "The content of the frame %s is not a JSON object.", f.name)
	}
	return request.UnmarshalChecked(f.content, v, strict)
}

// helloBody is the content of the frame hello.
type helloBody struct {
	Token    string          `json:"token"`
	User     *string         `json:"user"`
	Device   *request.Device `json:"device"`
	Activity *activityBody   `json:"activity"`
	Watch    *watchBody      `json:"watch"`
	Cursor   *string         `json:"cursor"`
	GraceMs  *request.Scalar `json:"grace_ms"`
}

// everyoneBody has the fields of a client that watches everyone.
type everyoneBody struct {
	Everyone *bool    `json:"everyone"`
	Snapshot *bool    `json:"snapshot"`
	Statuses []string `json:"status"`
}

// watchBody is the field watch of hello.
type watchBody struct {
	Users        []string `json:"users"`
	everyoneBody `json:",inline"`
	Counts       *bool `json:"counts"`
}

// changeBody is the content of the frame watch.
type changeBody struct {
	Add          []string `json:"add"`
	Remove       []string `json:"remove"`
	Cursor       *string  `json:"cursor"`
	everyoneBody `json:",inline"`
	Counts       *bool `json:"counts"`
}

// activityBody is the field activity of hello.
type activityBody struct {
	Idle   *bool           `json:"idle"`
	IdleMs *request.Scalar `json:"idle_ms"`
}

// activity returns what a client says about the use of its device.
func (b activityBody) activity() (a connections.Activity, err error) {
	if b.Idle == nil {
		return a, problem.New(problem.InvalidParameter, "The field idle is missing: send true or false.")
	}
	a.Idle = *b.Idle
	if b.IdleMs != nil {
		a.For, err = milliseconds("idle_ms", *b.IdleMs, connections.MaxIdle)
	}
	return a, err
}

// milliseconds reads a field that is a number of them.
func milliseconds(name string, s request.Scalar, limit time.Duration) (time.Duration, error) {
	n, err := strconv.Atoi(string(s))
	if err != nil || n < 0 || int64(n) > limit.Milliseconds() {
		return 0, problem.Errorf(problem.InvalidDuration,
			"Invalid %s %.40q: use 0 to %d.", name, s, limit.Milliseconds())
	}
	return time.Duration(n) * time.Millisecond, nil
}

// strict reads the types of frames.
var strict = request.Strict(
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, f *clientFrame) error {
		return request.DecodeObject(d, f, decodeFrameField)
	}),
	json.UnmarshalFromFunc(request.DecodeScalar),
	json.UnmarshalFromFunc(request.DecodeDevice),
	request.ListOf[[]string](request.MaxUsers, request.DecodeString),
)

// opening returns what the hello says about the connection of a user; nil if the client only watches.
func (b helloBody) opening(defaultGrace time.Duration) (*connections.Opening, error) {
	o := &connections.Opening{Grace: defaultGrace, Kind: lastseen.Other}
	var err error
	if b.GraceMs != nil {
		if o.Grace, err = milliseconds("grace_ms", *b.GraceMs, connections.MaxGrace); err != nil {
			return nil, err
		}
	}
	if b.Activity != nil {
		activity, err := b.Activity.activity()
		if err != nil {
			return nil, err
		}
		o.Activity = &activity
	}
	if b.Device != nil {
		d := *b.Device
		made := d.ID == ""
		if made {
			d.ID = "any" // the registry makes one
		}
		kind, err := d.Check()
		if err != nil {
			return nil, err
		}
		o.Kind, o.Meta = kind, string(d.Meta)
		if !made {
			o.Device = d.ID
		}
	}
	if b.User == nil {
		if b.Device != nil || b.Activity != nil {
			return nil, problem.New(problem.InvalidParameter,
				"device and activity need user: a client that only watches has no device.")
		}
		return nil, nil
	}
	if err := lastseen.CheckUser(*b.User); err != nil {
		return nil, problem.From(problem.InvalidUser, err)
	}
	o.User = *b.User
	return o, nil
}

// credentials returns the Authorization header of a session whose hello has a token. If the request had one, too, both
// must agree: a proxy may add its own credentials.
func (b helloBody) credentials(header []string) ([]string, error) {
	if b.Token == "" {
		return header, nil
	}
	if len(header) > 0 {
		scheme, sent, _ := strings.Cut(header[0], " ")
		if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.TrimLeft(sent, " ") != b.Token {
			return nil, problem.New(problem.InvalidParameter,
				"The token in the frame hello is not that in the header Authorization: send one of them.")
		}
	}
	return bearerHeader(b.Token), nil
}

func bearerHeader(token string) []string { return []string{"Bearer " + token} }

func isTrue(b *bool) bool { return b != nil && *b }
