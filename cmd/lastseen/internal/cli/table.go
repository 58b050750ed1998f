package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/colorprofile"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// table prints results in columns, or as JSON. It has one page in memory, so the columns of two pages can differ in
// width.
type table struct {
	json  io.Writer // instead of columns
	out   io.Writer
	page  bytes.Buffer
	cells *tabwriter.Writer // into the page
	rows  int
}

// pageRows is how many rows are aligned with each other.
const pageRows = 1000

func (o output) table(std Streams, header ...string) *table {
	if o.JSON {
		return &table{json: std.Out}
	}
	t := &table{out: colorprofile.NewWriter(std.Out, environ())}
	t.cells = tabwriter.NewWriter(&t.page, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t.cells, strings.Join(header, "\t"))
	return t
}

// row adds a result, which has these cells.
func (t *table) row(result any, cells ...string) error {
	if t.json != nil {
		return writeJSON(t.json, result)
	}
	fmt.Fprintln(t.cells, strings.Join(cells, "\t"))
	if t.rows++; t.rows%pageRows == 0 {
		return t.end()
	}
	return nil
}

// end prints what is left, without spaces at the ends of lines.
func (t *table) end() error {
	if t.json != nil {
		return nil
	}
	_ = t.cells.Flush() // into memory
	lines := strings.Split(t.page.String(), "\n")
	t.page.Reset()
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(t.out, strings.Join(lines, "\n"))
	return err
}

// fail prints what there is until an error, and returns that.
func (t *table) fail(err error) error {
	if t.rows == 0 {
		return err
	}
	return errors.Join(t.end(), err)
}

// userTable returns a table of users; add them with user.
func (o output) userTable(std Streams) *table {
	return o.table(std, "USER", noColour+"STATUS"+noColour, "LAST SEEN", "DETAILS")
}

func (t *table) user(p client.Presence) error {
	return t.row(p, word(p.User), dot(p.Status), ago(p.LastSeen, p.AsOf), details(p))
}

// noColour is as long as the codes of colours, so that columns align.
const noColour = "\x1b[39m"

// dot returns a status in its colour.
func dot(s lastseen.Status) string {
	code := map[lastseen.Status]string{lastseen.Green: "\x1b[32m", lastseen.Yellow: "\x1b[33m"}[s]
	return cmp.Or(code, "\x1b[90m") + "● " + printable(string(s)) + noColour
}

// details returns what a presence says besides its status and time.
func details(p client.Presence) string {
	all := []string{p.Activity, string(p.Availability), p.Note}
	if p.InCall {
		all = slices.Insert(all, 1, "in a call")
	}
	if p.Left {
		all = slices.Insert(all, 0, "left")
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	for i := range all {
		all[i] = printable(all[i])
	}
	return strings.Join(all, ", ")
}

// stamp returns a time; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// printable returns a text that anyone can choose, such as the ID of a user: quoted if a terminal might take it for
// something else.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// word is printable for the ID of a user or of a device: one with spaces is quoted as well.
func word(s string) string {
	if strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return printable(s)
}

// ago returns how long before a time another one was, in its largest unit.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	d := max(0, now.Sub(at))
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= unit.length {
			return strconv.Itoa(int(d/unit.length)) + unit.name + " ago"
		}
	}
	return strconv.Itoa(int(d/time.Second)) + "s ago"
}
