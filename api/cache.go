package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxFreshMs is how long an answer about users may be kept at most, in milliseconds: a ping or a leave
// can change it any time.
const maxFreshMs = 5000

// answerCached sends JSON about the users, which a cache may keep until the first of their statuses
// decays, but for [maxFreshMs] at most. A caller who names the tag of the answer it has gets 304 and no
// body. Responses to authenticated callers are private. The tag is weak: of two responses that differ only in the
// time of the request, or in their encoding, one will do.
func answerCached(c echo.Context, body any, e evaluated, users ...presence) error {
	tag := entityTag(e, users)
	header := c.Response().Header()
	header.Set("ETag", "W/"+tag)
	policy := "max-age=" + strconv.FormatInt(freshMs(e.AsOf, users)/1000, 10)
	if caller := callerOf(c); caller != nil {
		header.Add(echo.HeaderVary, echo.HeaderAuthorization)
		if !caller.IsAnonymous() {
			policy = "private, " + policy
		}
	}
	header.Set(echo.HeaderCacheControl, policy)
	if namesTag(c.Request().Header.Values("If-None-Match"), tag) {
		if len(users) > 1 { // as with the response that this stands for, if that is large
			varyByEncoding(header)
		}
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

// entityTag names what an answer tells about the users, in quotes: all of it but the time of evaluation. It is the
// same on every server with the same thresholds.
func entityTag(e evaluated, users []presence) string {
	told := make([]byte, 0, 64)
	told = binary.BigEndian.AppendUint64(told, uint64(e.GreenMs))
	told = binary.BigEndian.AppendUint64(told, uint64(e.YellowMs))
	for _, u := range users {
		told = append(append(told, u.User...), 0) // there is no such byte in a name
		told = strconv.AppendBool(append(told, u.Status...), u.Left)
		told = binary.BigEndian.AppendUint64(told, uint64(u.LastSeen))
		told = binary.BigEndian.AppendUint64(told, uint64(u.ValidUntil))
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
