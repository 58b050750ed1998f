// Command man prints the guide of the command line, docs/cli.md, as a man page for section 1. `make man` writes it.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

func main() {
	guide, err := os.ReadFile("../../docs/cli.md")
	var page []byte
	if err == nil {
		page, err = manPage(string(guide))
	}
	if err == nil {
		_, err = os.Stdout.Write(page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

const title = "# Command line\n"

// heading is what a page needs that a guide does not: apropos finds pages by the line under NAME.
const heading = `% LASTSEEN 1

# NAME
lastseen - a presence service: who is online, and who was online recently

# DESCRIPTION
`

var (
	guideLink = regexp.MustCompile(`\[([^]]+)]\([^):]*\)`) // to another guide, which a man page cannot open
	comment   = regexp.MustCompile(`<!--.*?-->\n`)
)

// manPage returns a guide as troff.
func manPage(guide string) ([]byte, error) {
	text, ok := strings.CutPrefix(guide, title)
	if !ok {
		return nil, errors.New("the guide does not begin with its title")
	}
	text = guideLink.ReplaceAllString(comment.ReplaceAllString(text, ""), "$1")
	return md2man.Render([]byte(heading + text)), nil
}
