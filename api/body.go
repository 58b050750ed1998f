package api

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

const (
	maxBody      = 1 << 20  // bytes of a JSON body
	maxAssertion = 16 << 10 // the same, about one user; most of it is for a token
	maxAnnounced = 16 << 10 // bytes of memory that a length costs which is announced only
	maxAhead     = 5000     // milliseconds that a ping or leave may be ahead of the server
)

const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
)

// mediaType returns the type of the body: mediaJSON or mediaNDJSON. What curl and browsers send by
// default is read as JSON.
func mediaType(c echo.Context) (string, error) {
	header := c.Request().Header
	if encoding := header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return "", errorf(codeUnsupportedMediaType, "The body is encoded as %.40q; send it as it is.", encoding)
	}
	value := header.Get(echo.HeaderContentType)
	if value == "" {
		return mediaJSON, nil
	}
	media, params, err := mime.ParseMediaType(value)
	charset := strings.ToLower(params["charset"])
	if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "", errorf(codeUnsupportedMediaType, "The content type %.60q cannot be read; send %s in UTF-8.", value, mediaJSON)
	}
	switch media {
	case mediaJSON, "text/plain", "application/x-www-form-urlencoded":
		return mediaJSON, nil
	case mediaNDJSON:
		return mediaNDJSON, nil
	default:
		return "", errorf(codeUnsupportedMediaType, "The content type %.60q cannot be read; send %s.", value, mediaJSON)
	}
}

// readJSON reads the body, of so many bytes at most, into v. It reports false when there is no body.
func readJSON(c echo.Context, v any, most int64) (bool, error) {
	announced := min(max(c.Request().ContentLength, 0), maxAnnounced)
	body := bytes.NewBuffer(make([]byte, 0, announced+bytes.MinRead)) // ReadFrom wants so much free to see the end
	if _, err := body.ReadFrom(http.MaxBytesReader(c.Response().Writer, c.Request().Body, most)); err != nil {
		return false, bodyError(err)
	}
	if body.Len() == 0 {
		return false, nil
	}
	media, err := mediaType(c)
	switch {
	case err != nil:
		return false, err
	case media != mediaJSON:
		return false, errorf(codeUnsupportedMediaType, "This endpoint does not take %s; send %s.", media, mediaJSON)
	}
	return true, unmarshal(body.Bytes(), v)
}

// requireJSON reads the body into v, and there has to be one.
func requireJSON(c echo.Context, v any) error {
	there, err := readJSON(c, v, maxBody)
	if err == nil && !there {
		return newError(codeInvalidJSON, "The body is missing.")
	}
	return err
}

// bodyError says why a body could not be read to its end.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return errorf(codeBodyTooLarge, "The body has more than %d bytes; send less at once, or NDJSON.", tooLarge.Limit)
	}
	e := newError(codeInvalidJSON, "The body ended early, or took too long to arrive.")
	e.cause = err
	return e
}

// unmarshal reads exactly one JSON object, strictly: see the defaults of package json, which also
// refuses names given twice and anything that is not UTF-8.
func unmarshal(data []byte, v any) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == 'n' {
		return newError(codeInvalidJSON, "The body is not a JSON object.")
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return errorf(codeUnknownField, "There is no field %.40q here.", semantic.JSONPointer.LastToken())
	case errors.As(err, &semantic):
		return errorf(codeInvalidJSON, "%s is a %s; %s is expected.",
			place(semantic.JSONPointer), kindName(semantic.JSONKind), expected(semantic.GoType))
	case errors.Is(err, jsontext.ErrDuplicateName):
		return newError(codeInvalidJSON, "A name is given twice in one object.")
	case errors.As(err, &syntactic):
		return errorf(codeInvalidJSON, "It is no JSON from byte %d on: %v.", syntactic.ByteOffset, syntactic.Err)
	default:
		return &apiError{code: codeInvalidJSON, detail: "It is no JSON.", cause: err}
	}
}

func place(p jsontext.Pointer) string {
	if p == "" {
		return "The body"
	}
	return string(p)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{', '}':
		return "JSON object"
	case '[', ']':
		return "JSON array"
	case '"':
		return "JSON string"
	case '0':
		return "JSON number"
	default:
		return "JSON literal"
	}
}

func expected(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "another type"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// parseAt reads the time in the field "at", a JSON string or number; none means the server's time,
// now. It may be at most maxAhead in the future.
func parseAt(raw jsontext.Value, now lastseen.Instant) (lastseen.Instant, error) {
	if len(raw) == 0 {
		return now, nil
	}
	text := string(raw)
	switch raw.Kind() {
	case '0':
	case '"':
		unquoted, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return 0, errorf(codeInvalidJSON, "at: %v.", err)
		}
		text = string(unquoted)
	default:
		return 0, newError(codeInvalidTime, "at is neither a string nor a number; leave it out to mean now.")
	}
	at, err := lastseen.ParseTime(text)
	switch {
	case err != nil:
		return 0, errorf(codeInvalidTime, "at: %v.", err)
	case at < lastseen.MinInstant:
		return 0, newError(codeInvalidTime, "at is not after the beginning of 1970.")
	case at > now+maxAhead:
		return 0, errorf(codeInvalidTime, "at is %s, more than 5 seconds ahead of the server's clock, %s.", at, now)
	}
	return at, nil
}
