package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/api"
)

// bodyMemory is a setting that is a number of bytes, in MiB or GiB.
type bodyMemory int64

// maxBodyMemory bounds it: more than any machine has.
const maxBodyMemory = 1 << 40

func (m *bodyMemory) set(text string) error {
	number := strings.TrimRight(text, "KMGTiB")
	var unit int64
	switch strings.TrimPrefix(text, number) {
	case "MiB":
		unit = 1 << 20
	case "GiB":
		unit = 1 << 30
	default:
		return fmt.Errorf("%q has no unit", text)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxBodyMemory/unit || n*unit < api.MinBodyMemory {
		return fmt.Errorf("%q is out of range", text)
	}
	*m = bodyMemory(n * unit)
	return nil
}

func (*bodyMemory) takes() string {
	return fmt.Sprintf("a size from %dMiB to %dGiB", api.MinBodyMemory>>20, maxBodyMemory>>30)
}

// connections is a setting that is a number of connections, or "auto", which is zero.
type connections int

const (
	maxConnections  = 10_000_000
	autoConnections = 65_536 // at most, unless it is set: idle ones take 20 KB each
	autoText        = "auto"
)

func (c *connections) set(text string) error {
	if text == autoText {
		*c = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxConnections {
		return fmt.Errorf("%q is out of range", text)
	}
	*c = connections(n)
	return nil
}

func (*connections) takes() string {
	return fmt.Sprintf("auto, or a number from 1 to %d", maxConnections)
}

// most returns how many connections are allowed to a process that may open so many files; 0 for an unknown number.
// By default a sixteenth of them, but at least 128, is left to the store and whatever else opens files, or a half if
// there are very few.
func (c connections) most(files uint64) int {
	if c != 0 {
		return int(c)
	}
	if files == 0 {
		files = math.MaxInt32
	}
	reserve := min(max(files/16, 128), files/2)
	return int(min(files-reserve, autoConnections))
}
