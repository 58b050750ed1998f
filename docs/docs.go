// Package docs holds the guides, so that the server can serve them.
package docs

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed *.md pictures lastseen.example.yaml webhooks.schema.json
var files embed.FS

// Files returns the guides, which are the Markdown files, and the files that they show or link to.
func Files() embed.FS { return files }

// punctuation matches what an anchor leaves out.
var punctuation = regexp.MustCompile(`[^\pL\pM\pN\p{Pc} -]`)

// Anchors names the headings of a document as GitHub does. It counts how often it has returned each name.
type Anchors map[string]int

// Next returns the anchor of the next heading of the document, given without markup.
func (a Anchors) Next(heading string) string {
	anchor := punctuation.ReplaceAllString(strings.ToLower(heading), "")
	anchor = strings.ReplaceAll(anchor, " ", "-")
	n := a[anchor]
	a[anchor]++
	if n > 0 {
		anchor = fmt.Sprintf("%s-%d", anchor, n)
	}
	return anchor
}
