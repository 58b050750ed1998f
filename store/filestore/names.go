package filestore

import (
	"encoding/binary"
	"slices"
)

// names holds user IDs one after the other in large chunks of memory, without pointers for the garbage collector.
type names struct {
	chunks [][]byte
	free   map[int][][]place // freed slots, by the length of their names
	freed  map[int][]place   // the same, in use until the next freeze: a compaction may be reading the names
}

// place is the location of a name: the number of its chunk in the upper half, the offset there in the lower. The name
// is preceded by its length as a uvarint.
type place uint64

// noName is the place of the empty name, which comes before all others.
const noName place = 0

// namesChunk is the size of a chunk in bytes. A longer name has a chunk to itself.
const namesChunk = 64 << 10

func newNames() names {
	n := names{free: map[int][][]place{}, freed: map[int][]place{}}
	n.add("") // at noName
	return n
}

// add copies a name and returns the place of the copy.
func (n *names) add(name string) place {
	if p, ok := n.slot(len(name)); ok {
		copy(n.at(p), name)
		return p
	}
	need := binary.MaxVarintLen64 + len(name)
	last := len(n.chunks) - 1
	if last < 0 || len(n.chunks[last])+need > namesChunk {
		var chunk []byte
		if last >= 0 { // the first one grows on demand: most namespaces are small
			chunk = make([]byte, 0, max(namesChunk, need))
		}
		n.chunks = append(n.chunks, chunk)
		last++
	}
	p := place(last)<<32 | place(len(n.chunks[last]))
	n.chunks[last] = appendString(n.chunks[last], name)
	return p
}

// slot returns a free slot for a name of the given length, if there is one. It is in use from then on.
func (n *names) slot(length int) (place, bool) {
	free := n.free[length]
	if len(free) == 0 {
		return 0, false
	}
	slots := free[len(free)-1]
	last := len(slots) - 1
	if last == 0 {
		n.free[length] = free[:len(free)-1]
	} else {
		free[len(free)-1] = slots[:last]
	}
	return slots[last], true
}

// at returns the name at a place, valid until it is removed: then another name may take its slot.
func (n *names) at(p place) []byte {
	b := n.chunks[p>>32][uint32(p):]
	length, size := binary.Uvarint(b)
	return b[size : size+int(length)]
}

// remove frees the slot of a name. A new name of the same length can use it after the next freeze.
func (n *names) remove(p place) {
	length := len(n.at(p))
	n.freed[length] = append(n.freed[length], p)
}

// freeze returns the names as they are now, to be read without a lock until the next freeze.
func (n *names) freeze() *names {
	for length, slots := range n.freed {
		n.free[length] = append(n.free[length], slots)
	}
	clear(n.freed)
	return &names{chunks: slices.Clone(n.chunks)}
}
