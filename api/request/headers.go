package request

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

// The media types of bodies.
const (
	JSON   = "application/json"
	NDJSON = "application/x-ndjson"
)

// Names of headers of this API.
const (
	IdempotencyKey = "Idempotency-Key"
	// PingAfterHeader says when to ping next, in milliseconds, in a response without a body.
	PingAfterHeader = "Lastseen-Ping-After-Ms"
	// AgeHeader says how old the data of a response may be that a replica gave, in seconds. Others do not have it.
	AgeHeader = "Lastseen-Age"
)

// Maximum lengths of headers in bytes.
const (
	maxID             = 128
	maxIdempotencyKey = 255
)

// ID returns the ID of a request: that of the client if it is valid, or a random one.
func ID(r *http.Request) string {
	id := r.Header.Get(echo.HeaderXRequestID)
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, invalid) {
		return strconv.FormatUint(rand.Uint64(), 36)
	}
	return id
}

// ReadIdempotencyKey returns the idempotency key of a request; "" if it has none.
func ReadIdempotencyKey(header http.Header) (string, error) {
	values := header[IdempotencyKey]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	invalid := func(r rune) bool { return r < ' ' || r > '~' }
	if len(values) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, invalid) {
		return "", problem.Errorf(problem.InvalidCall,
			"Invalid header %s: use 1 to %d printable ASCII characters, once.", IdempotencyKey, maxIdempotencyKey)
	}
	return key, nil
}

// PrefersMinimal reports whether the client prefers a response without a body: see RFC 7240.
func PrefersMinimal(r *http.Request) bool {
	for _, header := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(header, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(strings.ReplaceAll(preference, " ", ""), "=")
			if strings.EqualFold(name, "return") && strings.Trim(value, `"`) == "minimal" {
				return true
			}
		}
	}
	return false
}

// MediaType returns the type of the body: [JSON] or [NDJSON]. The types that curl and browsers send by default
// count as JSON.
func MediaType(c echo.Context) (string, error) {
	header := c.Request().Header
	if encoding := header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Unsupported content encoding %.40q: send the body unencoded.", encoding)
	}
	value := header.Get(echo.HeaderContentType)
	if value == "" {
		return JSON, nil
	}
	media, params, err := mime.ParseMediaType(value)
	charset := strings.ToLower(params["charset"])
	if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Invalid content type or charset in %.60q: send %s in UTF-8.", value, JSON)
	}
	switch media {
	case JSON, "text/plain", "application/x-www-form-urlencoded":
		return JSON, nil
	case NDJSON:
		return NDJSON, nil
	default:
		return "", problem.Errorf(problem.UnsupportedMediaType,
			"Unsupported content type %.60q: send %s.", value, JSON)
	}
}

// Tag returns the ETag of a content, in quotes: a hash.
func Tag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// TagMatches reports whether one of the If-None-Match headers is a star or lists the ETag: see RFC 9110, section
// 13.1.2. Our ETags contain no comma.
func TagMatches(headers []string, tag string) bool {
	for _, header := range headers {
		for listed := range strings.SplitSeq(header, ",") {
			listed = strings.TrimSpace(listed)
			if listed == "*" || strings.TrimPrefix(listed, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// AcceptsGzip reports whether the Accept-Encoding headers of a request accept gzip and do not prefer identity: see RFC
// 9110, section 12.5.3. It ignores malformed items.
func AcceptsGzip(headers []string) bool {
	accepted := weights(headers)
	for _, name := range []string{"gzip", "x-gzip", "*"} {
		if weight, named := accepted[name]; named {
			return weight > 0 && weight >= accepted["identity"]
		}
	}
	return false
}

// Prefers reports whether the Accept headers of a request name a media type, and do not prefer another one. It ignores
// wildcards and malformed items.
func Prefers(headers []string, wanted, other string) bool {
	accepted := weights(headers)
	return accepted[wanted] > 0 && accepted[wanted] >= accepted[other]
}

// weights returns the largest weight of each item in headers such as Accept, by its name in lower case: see RFC 9110,
// section 12.4.2.
func weights(headers []string) map[string]float64 {
	all := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		name, parameters, err := mime.ParseMediaType(item)
		weight, malformed := strconv.ParseFloat(cmp.Or(parameters["q"], "1"), 64)
		if err == nil && malformed == nil && weight >= 0 && weight <= 1 {
			all[name] = max(all[name], weight)
		}
	}
	return all
}
