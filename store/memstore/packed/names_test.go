package packed

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesReuseSlots: names that come and go take no more memory in the end, once a compaction has begun.
func TestNamesReuseSlots(t *testing.T) {
	n := NewNames()
	size := func() (bytes int) {
		for _, chunk := range n.chunks {
			bytes += len(chunk)
		}
		return bytes
	}
	name := func(letter string, i int) string { return strings.Repeat(letter, 1+i%200) + string(rune('a'+i/200)) }
	refs := map[string]Ref{}
	fill := func(letter string, number int) {
		for i := range number {
			refs[name(letter, i)] = n.Add(name(letter, i))
		}
	}
	remove := func(name string) {
		require.Equal(t, name, string(n.At(refs[name])))
		n.Remove(refs[name])
		delete(refs, name)
	}
	fill("x", 1000)
	most := size()
	require.Greater(t, n.Chunks(), 1, "several chunks are in use")
	for round := range 5 {
		for name := range refs {
			remove(name)
		}
		n.Freeze()
		letter := string(rune('a' + round))
		fill(letter, 1000)
		require.Equal(t, most, size())
		for i := range 500 { // some slots are free already when others become so
			remove(name(letter, i))
			if i%100 == 0 {
				n.Freeze()
			}
		}
		n.Freeze()
		fill(letter, 500)
		require.Equal(t, most, size())
		require.Len(t, refs, 1000)
	}
}

// TestNamesSlots: all slots have references, in the order of their chunks, also those that are free or used again.
func TestNamesSlots(t *testing.T) {
	n := NewNames()
	want := []Ref{NoName}
	for _, length := range []int{1, 127, 128, namesChunk, namesChunk - 20, 10, 3 * namesChunk} {
		want = append(want, n.Add(strings.Repeat("x", length)))
	}
	n.Remove(want[2])
	slots := func() (all []Ref) {
		for chunk := range n.Chunks() {
			all = append(all, n.Slots(chunk)...)
		}
		return all
	}
	require.Greater(t, n.Chunks(), 3)
	require.Equal(t, want, slots())
	n.Freeze()
	require.Equal(t, want[2], n.Add(strings.Repeat("y", 127)))
	require.Equal(t, want, slots())
}
