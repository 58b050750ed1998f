package lastseen

import "slices"

// Range selects the users of one half of a namespace, present or left, by last-seen time. Both ends
// are included.
type Range struct {
	Left     bool // people who left, instead of people present
	From, To Instant
}

// Contains reports whether a user in state s is selected.
func (r Range) Contains(s State) bool {
	return s.Known() && s.Left == r.Left && r.From <= s.At && s.At <= r.To
}

// Ranges returns the ranges which together hold exactly the users last seen within [from, to] who
// have one of the wanted statuses as of asOf. No status wanted means all of them. The ranges are
// disjoint and none is empty; to is at most asOf.
func (t Thresholds) Ranges(wanted []Status, asOf, from, to Instant) []Range {
	var ranges []Range
	add := func(status Status, r Range) {
		r.From, r.To = max(r.From, from, MinInstant), min(r.To, to)
		if r.From > r.To || len(wanted) > 0 && !slices.Contains(wanted, status) {
			return
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last].Left == r.Left && ranges[last].From == r.To+1 {
			ranges[last].From = r.From
			return
		}
		ranges = append(ranges, r)
	}
	green, yellow := asOf-millis(t.Green), asOf-millis(t.Yellow)
	add(Green, Range{From: green + 1, To: asOf})
	add(Yellow, Range{From: yellow + 1, To: green})
	add(Grey, Range{From: MinInstant, To: yellow})
	add(Grey, Range{Left: true, From: MinInstant, To: asOf})
	return ranges
}
