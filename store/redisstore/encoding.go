package redisstore

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lastseen/lastseen"
)

// This file alone knows how a state is a score:
//
//	t > 0      present, last seen at t
//	-t         left at t: the same time, mirrored at zero
//	2^52 + t   hidden since t: reserved, outside every range, read as never seen
//
// All are whole milliseconds below 2^53, so a float64 holds them exactly. Zero and what lies between
// or beyond the bands is never written by us; it is read as never seen, too.

// hiddenFrom is the lowest score of the hidden band.
const hiddenFrom = 1 << 52

// score returns the score of a known state, as Redis takes it.
func score(s lastseen.State) string {
	if s.Left {
		return "-" + strconv.FormatInt(int64(s.At), 10)
	}
	return strconv.FormatInt(int64(s.At), 10)
}

// stateOf reads a score. One that is nobody's last-seen time is the zero state.
func stateOf(score float64) lastseen.State {
	if size := math.Abs(score); size < float64(lastseen.MinInstant) || outOfBand(score) {
		return lastseen.State{}
	}
	if score < 0 {
		return lastseen.State{At: lastseen.Instant(-score), Left: true}
	}
	return lastseen.State{At: lastseen.Instant(score)}
}

// outOfBand reports whether a score is too large for a time, as those of the hidden band are. No ping
// or leave moves such a member.
func outOfBand(score float64) bool { return math.Abs(score) > float64(lastseen.MaxInstant) }

// scoreOf reads a score out of a script's reply; a missing member is nil there, and 0 here: either is
// never seen.
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

// stateOfReply reads the state of a score in a script's reply.
func stateOfReply(reply any) (lastseen.State, error) {
	f, err := scoreOf(reply)
	return stateOf(f), err
}

// stateAfter returns the state that a write leaves behind, given the score before in a script's reply.
// Whoever is hidden stays hidden, and is not given away.
func stateAfter(before any, write func(lastseen.State) lastseen.State) (lastseen.State, error) {
	f, err := scoreOf(before)
	if err != nil || outOfBand(f) {
		return lastseen.State{}, err
	}
	return write(stateOf(f)), nil
}

// bounds returns the lowest and highest score of a range, both included.
func bounds(r lastseen.Range) (low, high string) {
	if r.Left {
		return score(lastseen.State{At: r.To, Left: true}), score(lastseen.State{At: r.From, Left: true})
	}
	return score(lastseen.State{At: r.From}), score(lastseen.State{At: r.To})
}

// halves are the widest ranges: everyone present, everyone who left, nobody hidden.
func halves() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}
