package request

import (
	"mime"
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
	gzip, identity, others := -1, -1, -1 // weights in thousandths; -1 if not named
	for _, header := range headers {
		for coding := range strings.SplitSeq(header, ",") {
			name, parameter, _ := strings.Cut(coding, ";")
			q, ok := weight(parameter)
			if !ok {
				continue
			}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
				gzip = max(gzip, q)
			case strings.EqualFold(name, "identity"):
				identity = max(identity, q)
			case name == "*":
				others = max(others, q)
			}
		}
	}
	if gzip < 0 {
		gzip = others
	}
	return gzip > 0 && gzip >= identity
}

// Prefers reports whether the Accept headers of a request name a media type, and do not prefer another one. It ignores
// wildcards and malformed items.
func Prefers(headers []string, wanted, other string) bool {
	first, second := 0, 0 // weights in thousandths
	for _, header := range headers {
		for media := range strings.SplitSeq(header, ",") {
			name, _, _ := strings.Cut(media, ";")
			last := media[strings.LastIndexByte(media, ';')+1:]
			if key, _, _ := strings.Cut(last, "="); !strings.EqualFold(strings.TrimSpace(key), "q") {
				last = "" // such as a charset
			}
			q, ok := weight(last)
			if !ok {
				continue
			}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, wanted):
				first = max(first, q)
			case strings.EqualFold(name, other):
				second = max(second, q)
			}
		}
	}
	return first > 0 && first >= second
}

// weight parses a parameter such as q=0.5 and returns the weight in thousandths; 1000 if the parameter is empty.
func weight(parameter string) (int, bool) {
	parameter = strings.TrimSpace(parameter)
	if parameter == "" {
		return 1000, true
	}
	name, value, _ := strings.Cut(parameter, "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !strings.EqualFold(strings.TrimSpace(name), "q") || err != nil || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return int(q * 1000), true
}
