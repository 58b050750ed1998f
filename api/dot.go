package api

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/request"
)

const mediaSVG = "image/svg+xml"

const (
	minDotSize     = 8 // pixels
	maxDotSize     = 512
	defaultDotSize = 16
)

// disc is the path of a disc in a square of 16 units, and the outline of all shapes. Even-odd filling cuts out what
// follows it.
const disc = "M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z"

// dotShape returns the path and the colour of a dot. The shapes differ as much as the colours: a disc, a clock, a disc
// with a bar, a ring. Each colour has a contrast of 3:1 or more on white and on #111, because an image does not know
// what is behind it. The file api/web/lastseen/elements.js has the same.
func dotShape(dot lastseen.Dot) (path, paint string) {
	switch dot {
	case lastseen.GreenDot:
		return disc, "#2da44e"
	case lastseen.RedDot:
		return disc + "M4 7h8v2H4Z", "#cf222e"
	case lastseen.YellowDot:
		return disc + "M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z", "#bf8700"
	default:
		return disc + "M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z", "#6e7781"
	}
}

// @ID getDot
// @Tags Reading
// @Summary Show one user as a dot
// @Description Returns an SVG image. A ring is grey: the user is offline. A disc with a bar is red: the user is online,
// @Description and busy or in a call. A disc with the hands of a clock is yellow: the user is away, idle, or was online
// @Description a while ago. A filled disc is green: the user is online. Its title says what it shows, such as "alice was
// @Description last seen 3 minutes ago" or "bob is busy: in a meeting". An error is not an image: if the store is
// @Description unavailable, the response is 503, never a grey dot. In `<img>`, browsers send no `Authorization`, so that
// @Description anonymous callers need to be allowed to read. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets the ring of a user never seen, unless the other
// @Description user has the token's user among their contacts.
// @Produce image/svg+xml
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param size query integer false "width and height"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {string} string "The image."
// @Success 304 "Not modified since the response that `If-None-Match` names."
// @Router /v1/namespaces/{namespace}/users/{user}/dot.svg [get]
func (s *server) getDot(c echo.Context, q request.Query) error {
	r := request.Params{Query: q}
	size := r.Number("size", minDotSize, maxDotSize, defaultDotSize)
	if r.Err != nil {
		return r.Err
	}
	v, p, err := s.lookUp(c, q)
	if err != nil {
		return err
	}
	image := drawDot(p, v.asOf, size)
	header := c.Response().Header()
	// Pages of any origin may show the image, and opened as a page, it loads nothing.
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	header.Set("Content-Security-Policy", "default-src 'none'")
	if cached(c, hashTag(image), v.maxAge([]presence{p})) {
		return c.NoContent(http.StatusNotModified)
	}
	header.Set(echo.HeaderContentType, mediaSVG)
	return request.Send(c, http.StatusOK, image)
}

// drawDot returns the image of a user's status, size pixels wide and high.
func drawDot(p presence, asOf lastseen.Instant, size int) []byte {
	path, paint := dotShape(p.dot())
	var title bytes.Buffer
	_ = xml.EscapeText(&title, []byte(dotTitle(p, asOf))) // into memory, which does not fail
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%[1]d" viewBox="0 0 16 16" `+
		`role="img"><title>%s</title><path fill="%s" fill-rule="evenodd" d="%s"/></svg>`+"\n",
		size, title.Bytes(), paint, path)
}

// dot returns the dot of a user.
func (p presence) dot() lastseen.Dot {
	if p.userDetails == nil {
		return lastseen.DotOf(p.Status, "", false, false)
	}
	return lastseen.DotOf(p.Status, p.Availability, p.IdleSince != 0, p.InCall)
}

// dotTitle returns what an image shows in words. They are coarse, because a cache may keep them for a few seconds.
func dotTitle(p presence, asOf lastseen.Instant) string {
	title := p.User
	said := ""
	if d := p.userDetails; d != nil && p.Status != lastseen.Grey {
		said = cmp.Or(string(d.Availability), d.Activity)
		if d.InCall {
			said = "in a call"
		}
	}
	switch {
	case p.Status == lastseen.Green:
		title += " is " + cmp.Or(said, "online")
	case p.LastSeen == 0:
		title += " is offline"
	case said != "":
		title += " is " + said + " and was last seen " + ago(asOf-lastseen.Instant(p.LastSeen))
	default:
		title += " was last seen " + ago(asOf-lastseen.Instant(p.LastSeen))
	}
	if p.userDetails != nil && p.Note != "" {
		title += ": " + p.Note
	}
	return title
}

// ago returns how long ago something was, in the largest unit of which at least one has passed.
func ago(age lastseen.Instant) string {
	const minute = 60_000 // milliseconds
	for _, unit := range []struct {
		length lastseen.Instant
		name   string
	}{
		{365 * 24 * 60 * minute, "year"},
		{30 * 24 * 60 * minute, "month"},
		{24 * 60 * minute, "day"},
		{60 * minute, "hour"},
		{minute, "minute"},
	} {
		if n := int(age / unit.length); n == 1 {
			return "1 " + unit.name + " ago"
		} else if n > 1 {
			return strconv.Itoa(n) + " " + unit.name + "s ago"
		}
	}
	return "just now"
}
