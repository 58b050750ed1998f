package filestore

import (
	"encoding/binary"
	"slices"

	"github.com/lastseen/lastseen"
)

// The changes to what users say:
//
//	change = 'a' user availability until note  what others see of what the user says is now this;
//	                                           all empty for nothing
//	       | 'h' user end ended until note     the user's hidden time, and what the user privately says, is now this;
//	                                           an end of 0 deletes both
//	user, availability, note = length as uvarint, bytes;  until, end = varint, 0 for none
//	ended = one byte, 0 or 1: the user said something else at the end

// say adds what others see of what a user says.
func (c *changes) say(namespace, user string, s lastseen.Said) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeSaid), user)
	c.buf = appendString(c.buf, string(s.Availability))
	c.buf = binary.AppendVarint(c.buf, int64(s.Until))
	c.buf = appendString(c.buf, s.Note)
}

// hide adds a user's hidden time, and what the user privately says.
func (c *changes) hide(namespace, user string, h hidden) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeHidden), user)
	c.buf = binary.AppendVarint(c.buf, int64(h.End))
	c.buf = appendBool(c.buf, h.Ended)
	c.buf = binary.AppendVarint(c.buf, int64(h.until))
	c.buf = appendString(c.buf, h.note)
}

func (u *users) replaySaid(user string, rest *cutter) {
	s := lastseen.Said{Availability: rest.availability(), Until: rest.instant(), Note: rest.string()}
	if rest.failed || s.Until < 0 || s.Until > lastseen.MaxInstant {
		rest.fail()
		return
	}
	u.say(user, s)
}

func (u *users) replayHidden(user string, rest *cutter) {
	var h hidden
	h.End, h.Ended, h.until, h.note = rest.instant(), rest.bool(), rest.instant(), rest.string()
	for _, at := range []lastseen.Instant{h.End, h.until} {
		if rest.failed || at < 0 || at > lastseen.MaxInstant {
			rest.fail()
			return
		}
	}
	if h.End == 0 {
		h = hidden{}
	}
	u.hide(user, h)
}

// availability reads an availability that others see. It returns one of the constants, which takes no memory.
func (c *cutter) availability() lastseen.Availability {
	text := c.string()
	others := []lastseen.Availability{"", lastseen.Away, lastseen.Busy}
	i := slices.Index(others, lastseen.Availability(text))
	if i < 0 {
		c.fail()
		return ""
	}
	return others[i]
}
