package web

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
)

// disc is the path of a disc in a square of 16 units, and the outline of all shapes. Even-odd filling cuts out what
// follows it.
const disc = "M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z"

// dotShape returns the path and the colour of a dot. The shapes differ as much as the colours: a disc, a clock, a disc
// with a bar, a ring. Each colour has a contrast of 3:1 or more on white and on #111, because an image does not know
// what is behind it. The file lastseen/elements.js has the same.
func dotShape(dot string) (path, paint string) {
	switch dot {
	case "green":
		return disc, "#2da44e"
	case "red":
		return disc + "M4 7h8v2H4Z", "#cf222e"
	case "yellow":
		return disc + "M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z", "#bf8700"
	default:
		return disc + "M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z", "#6e7781"
	}
}

// Dot returns an SVG image of a dot with a title, size pixels wide and high. A dot is green, red, yellow or grey.
func Dot(dot, title string, size int) []byte {
	path, paint := dotShape(dot)
	var escaped bytes.Buffer
	_ = xml.EscapeText(&escaped, []byte(title)) // into memory, which does not fail
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%[1]d" viewBox="0 0 16 16" `+
		`role="img"><title>%s</title><path fill="%s" fill-rule="evenodd" d="%s"/></svg>`+"\n",
		size, escaped.Bytes(), paint, path)
}

// Ago returns how long some milliseconds are ago, in the largest unit of which at least one has passed.
func Ago(age int64) string {
	const minute = 60_000 // milliseconds
	for _, unit := range []struct {
		length int64
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
