package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// maxMaxAge is the longest time that a cache may keep a response about users, in milliseconds. A ping or a leave can
// change it at any time.
const maxMaxAge = 5000

// respondCached sends JSON about users, or 304: see [cached]. The ETag is weak: it is the same for responses that
// differ only in the time of the request or in their encoding.
func respondCached(c echo.Context, body any, v view, users ...presence) error {
	if !cached(c, etagOf(v.evaluated(), users), v.maxAge(users)) {
		return respond(c, body)
	}
	if len(users) > 1 { // as in the response that this replaces, if that is large
		varyByEncoding(c.Response().Header())
	}
	return c.NoContent(http.StatusNotModified)
}

// cached sets the headers by which caches may keep a response about users for a time in milliseconds, and reports
// whether the client has the response already, by its ETag. It then gets status 304 and no body. Responses to
// authenticated callers are private.
func cached(c echo.Context, tag string, age int64) bool {
	header := c.Response().Header()
	header.Set("ETag", "W/"+tag)
	policy := "max-age=" + strconv.FormatInt(age/1000, 10)
	if caller := callerOf(c); caller != nil {
		header.Add(echo.HeaderVary, echo.HeaderAuthorization)
		if !caller.IsAnonymous() {
			policy = "private, " + policy
		}
	}
	header.Set(echo.HeaderCacheControl, policy)
	return etagMatches(c.Request().Header.Values("If-None-Match"), tag)
}

// maxAge returns how long a response about users may be kept, in milliseconds: until the first of their statuses
// decays, or of their availabilities or calls ends, at most for [maxMaxAge].
func (v view) maxAge(users []presence) int64 {
	age := int64(maxMaxAge)
	for _, u := range users {
		if u.ValidUntil != 0 {
			age = min(age, int64(u.ValidUntil)-int64(v.asOf))
		}
		if u.userDetails == nil {
			continue
		}
		for _, end := range []lastseen.Instant{lastseen.Instant(u.AvailabilityUntil), u.inCallUntil} {
			if end != 0 {
				age = min(age, int64(end)-int64(v.now))
			}
		}
	}
	return age
}

// etagOf returns a hash, in quotes, of a response about users without its time of evaluation. It is the same on every
// server with the same thresholds.
func etagOf(e evaluated, users []presence) string {
	content := make([]byte, 0, 64)
	content = binary.BigEndian.AppendUint64(content, uint64(e.GreenMs))
	content = binary.BigEndian.AppendUint64(content, uint64(e.YellowMs))
	for _, u := range users {
		content = append(append(content, u.User...), 0) // user IDs contain no such byte
		content = strconv.AppendBool(append(content, u.Status...), u.Left)
		content = binary.BigEndian.AppendUint64(content, uint64(u.LastSeen))
		content = binary.BigEndian.AppendUint64(content, uint64(u.ValidUntil))
		if u.userDetails != nil {
			content = append(u.userDetails.appendFields(append(content, 1)), 0) // nor do user IDs begin with byte 1
		}
	}
	return hashTag(content)
}

// hashTag returns a hash of a content, in quotes.
func hashTag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// etagMatches reports whether one of the If-None-Match headers is a star or lists the ETag: see RFC 9110, section
// 13.1.2. Our ETags contain no comma.
func etagMatches(headers []string, tag string) bool {
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
