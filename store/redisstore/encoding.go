package redisstore

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lastseen/lastseen"
)

// This file alone defines how a state becomes a score:
//
//	t > 0      present, last seen at t
//	-t         left at t: the same time, mirrored at zero
//	2^52 + t   hidden since t: reserved, outside every range, read as never seen; in milliseconds only
//
// In milliseconds our scores are whole and below 2^53, so a float64 holds them exactly. In seconds a time has three
// fractional digits and at most 15 in all; no two such numbers have the same nearest float64, so each is read as the time
// that was written. We never write zero or a score between or beyond the bands; such scores are read as never seen.

// hiddenFrom is the lowest score of the hidden band.
const hiddenFrom = 1 << 52

// encoding is what the scores of one namespace mean.
type encoding struct {
	unit   Unit
	shared bool // other programs write the set, too: any number may be a score
}

// time returns an instant as a score, as Redis takes it.
func (e encoding) time(at lastseen.Instant) string {
	if e.unit != Seconds {
		return strconv.FormatInt(int64(at), 10)
	}
	if at%1000 == 0 {
		return strconv.FormatInt(int64(at/1000), 10)
	}
	return fmt.Sprintf("%d.%03d", at/1000, at%1000)
}

// perScore returns how many milliseconds a score of 1 is.
func (e encoding) perScore() int64 {
	if e.unit != Seconds {
		return 1
	}
	return 1000
}

// score returns the score of a known state, as Redis takes it.
func (e encoding) score(s lastseen.State) string {
	if s.Left {
		return "-" + e.time(s.At)
	}
	return e.time(s.At)
}

// instant returns the time for the absolute value of a score, cut to the millisecond.
func (e encoding) instant(size float64) lastseen.Instant {
	if e.unit != Seconds {
		return lastseen.Instant(size)
	}
	// A product is rounded, and may end up in the next millisecond or the one before. A quotient of whole numbers is
	// rounded, too, but to the same float64 as the decimal number.
	at := lastseen.Instant(size * 1000)
	for float64(at)/1000 > size {
		at--
	}
	for float64(at+1)/1000 <= size {
		at++
	}
	return at
}

// state returns the state for a score; the zero state if the score is not a time.
func (e encoding) state(score float64) lastseen.State {
	size := math.Abs(score)
	if !(size < hiddenFrom) {
		return lastseen.State{}
	}
	at := e.instant(size)
	if at < lastseen.MinInstant || at > lastseen.MaxInstant {
		return lastseen.State{}
	}
	return lastseen.State{At: at, Left: score < 0}
}

// scoreOf reads a score from a script's reply. A missing member is nil there and 0 here; both mean never seen.
func scoreOf(reply any) (float64, error) {
	if reply == nil {
		return 0, nil
	}
	text, ok := reply.(string)
	if !ok {
		return 0, fmt.Errorf("score of type %T in a script's reply", reply)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("score in a script's reply: %w", err)
	}
	return f, nil
}

// stateOfReply reads a state from a score in a script's reply.
func (e encoding) stateOfReply(reply any) (lastseen.State, error) {
	f, err := scoreOf(reply)
	return e.state(f), err
}

// bounds returns the lowest and highest score of a range, as Redis takes them. Scores of other programs may lie between
// two milliseconds; they belong to the millisecond before.
func (e encoding) bounds(r lastseen.Range) (low, high string) {
	low, high = e.time(r.From), e.time(r.To)
	if e.shared {
		high = "(" + e.time(r.To+1)
	}
	if !r.Left {
		return low, high
	}
	if e.shared {
		return "(-" + e.time(r.To+1), "-" + low
	}
	return "-" + high, "-" + low
}

// halves returns the widest ranges: everyone present, and everyone who left. Hidden users are in neither.
func halves() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}

// hidden returns the lowest score of the hidden band; "" in seconds, where there is none: 2^52 leaves no digits for a
// fraction.
func (e encoding) hidden() string {
	if e.unit != Milliseconds {
		return ""
	}
	return strconv.FormatInt(hiddenFrom, 10)
}
