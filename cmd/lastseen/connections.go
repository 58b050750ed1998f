package main

import "math"

// maxAutoConnections bounds the number of connections unless it is set: an idle one takes 20 KB.
const maxAutoConnections = 65_536

// maxConnections returns how many connections are allowed: the setting or, if that is 0, a number that depends on how
// many files the process can open, 0 if unknown. It leaves a sixteenth of the files, but at least 128, to the store and
// others, or a half if there are very few.
func maxConnections(setting int, files uint64) int {
	if setting != 0 {
		return setting
	}
	if files == 0 {
		files = math.MaxInt32
	}
	reserve := min(max(files/16, 128), files/2)
	return int(min(files-reserve, maxAutoConnections))
}
