package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxFreshMs is how long an answer about users may be kept at most, in milliseconds: a ping or a leave
// can change it any time.
const maxFreshMs = 5000

// answerCached sends JSON about the users, which a cache may keep until the first of their statuses
// decays, but for [maxFreshMs] at most. A caller who names the tag of the answer it has gets 304 and no
// body. The tag is weak: of two answers that differ only in when they were asked for, one will do.
func answerCached(c echo.Context, body any, asOf timestamp, users ...presence) error {
	tag := entityTag(users)
	header := c.Response().Header()
	header.Set("ETag", "W/"+tag)
	header.Set(echo.HeaderCacheControl, fmt.Sprintf("max-age=%d", freshMs(asOf, users)/1000))
	if namesTag(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return answer(c, body)
}

// freshMs returns how many milliseconds the statuses hold, if nobody pings or leaves.
func freshMs(asOf timestamp, users []presence) int64 {
	fresh := int64(maxFreshMs)
	for _, u := range users {
		if u.ValidUntil != 0 {
			fresh = min(fresh, int64(u.ValidUntil-asOf))
		}
	}
	return fresh
}

// entityTag names what an answer tells about the users, in quotes. It is the same on every server.
func entityTag(users []presence) string {
	var told []byte
	for _, u := range users {
		told = fmt.Appendf(told, "%q %s %d %t %d\n", u.User, u.Status, u.LastSeen, u.Left, u.ValidUntil)
	}
	sum := sha256.Sum256(told)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// namesTag reports whether one of the If-None-Match headers is a star or lists the tag: see RFC 9110,
// section 13.1.2. Tags of ours contain no comma.
func namesTag(headers []string, tag string) bool {
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
