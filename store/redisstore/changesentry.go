package redisstore

import (
	"errors"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// readEntry reads an entry, and the link of the one before: see append in feed.lua. It returns false for an entry of
// another program.
func readEntry(reply any) (c store.Change, previous string, own place, ok bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return c, "", own, false
	}
	own.id, _ = pair[0].(string)
	fields, _ := pair[1].([]any)
	if len(fields) != 2 || fields[0] != "e" {
		return c, "", own, false
	}
	text, _ := fields[1].(string)
	values := strings.SplitN(text, " ", 5) // the user is the last one, and may contain spaces
	if len(values) != 5 {
		return c, "", own, false
	}
	if own.link = values[0]; !readChange(&c, own.id, values[2], values[3], values[4]) {
		return c, "", own, false
	}
	if previous = values[1]; previous == "" { // of the same call
		n, err := strconv.ParseInt(own.link, 10, 64)
		if err != nil {
			return c, "", own, false
		}
		previous = strconv.FormatInt(n-1, 10)
	}
	return c, previous, own, true
}

// readChange reads what an entry says about a user. It returns false for an entry of another program.
func readChange(c *store.Change, id, codes, time, user string) bool {
	ms, _, _ := strings.Cut(id, "-")
	recorded, err1 := strconv.ParseInt(ms, 10, 64)
	code, err2 := strconv.ParseUint(codes, 10, 8)
	at, err3 := strconv.ParseInt(time, 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return false
	}
	c.User = user
	if code >= codeDetails {
		code -= codeDetails
		if !readDetails(c) {
			return false
		}
	}
	if code/8 > codeLeft || code%8 > codeLeft {
		return false
	}
	c.At, c.Recorded = lastseen.Instant(at), lastseen.Instant(recorded)
	c.WasStatus, c.WasLeft = statuses[code/8], code/8 == codeLeft
	c.Status, c.Left = statuses[code%8], code%8 == codeLeft
	return true
}

// readDetails reads the details that precede the user ID of an entry. It returns false if their lengths are missing or
// too large. Details that another program wrote count as none.
func readDetails(c *store.Change) bool {
	values := strings.SplitN(c.User, " ", 3)
	if len(values) != 3 {
		return false
	}
	was, err1 := strconv.ParseUint(values[0], 10, 16)
	is, err2 := strconv.ParseUint(values[1], 10, 16)
	if errors.Join(err1, err2) != nil || was+is > uint64(len(values[2])) {
		return false
	}
	text := values[2]
	c.Was, _ = parseDetails(text[:was])
	c.Details, _ = parseDetails(text[was : was+is])
	c.User = text[was+is:]
	return true
}

// statuses are those of the codes in feed.lua: unknown, grey, yellow, green, left.
var statuses = [...]lastseen.Status{lastseen.Grey, lastseen.Grey, lastseen.Yellow, lastseen.Green, lastseen.Grey}

const (
	codeLeft    = 4
	codeDetails = 64 // is added for an entry with details
)
