package redisstore

import (
	"fmt"
	"strconv"

	"github.com/lastseen/lastseen"
)

// This file alone knows how a state is a score:
//
//	t > 0      present, last seen at t
//	-t         left at t: the same time, mirrored at zero
//	2^52 + t   hidden since t: reserved, outside every range, read as never seen
//
// All are whole milliseconds below 2^53, so a float64 holds them exactly.

// hiddenFrom is the lowest score of the hidden band.
const hiddenFrom = 1 << 52

// score returns the score of a known state, as Redis takes it.
func score(s lastseen.State) string {
	if s.Left {
		return "-" + strconv.FormatInt(int64(s.At), 10)
	}
	return strconv.FormatInt(int64(s.At), 10)
}

// stateOf reads a score. Zero, which is never written, hidden and out-of-band scores are nobody's
// last-seen time: the zero state.
func stateOf(score float64) lastseen.State {
	if score <= -hiddenFrom || score >= hiddenFrom {
		return lastseen.State{}
	}
	if score < 0 {
		return lastseen.State{At: lastseen.Instant(-score), Left: true}
	}
	return lastseen.State{At: lastseen.Instant(score)}
}

// stateOfReply reads a score out of a script's reply; a missing member is nil there.
func stateOfReply(v any) (lastseen.State, error) {
	if v == nil {
		return lastseen.State{}, nil
	}
	text, ok := v.(string)
	if !ok {
		return lastseen.State{}, fmt.Errorf("score of type %T in a script's reply", v)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return lastseen.State{}, fmt.Errorf("score in a script's reply: %w", err)
	}
	return stateOf(f), nil
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
		{From: lastseen.MinInstant, To: hiddenFrom - 1},
		{From: lastseen.MinInstant, To: hiddenFrom - 1, Left: true},
	}
}
