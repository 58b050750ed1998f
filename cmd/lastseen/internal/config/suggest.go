package config

// Suggest returns ", did you mean …?" with the candidate closest to a mistyped name, or "" if
// none is close.
func Suggest(name string, candidates []string) string {
	best, least := "", 1+len(name)/3
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < least || d == least && best == "" {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance returns the number of bytes to insert, delete or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
