package filestore

import (
	"encoding/binary"
	"slices"
)

// names holds user IDs one after the other in large pieces of memory, which are free of pointers: the garbage
// collector, which would look at each of millions of strings every time, does not look into them.
type names struct {
	chunks [][]byte
	free   map[int][][]place // by length: slots of removed names
	freed  map[int][]place   // the same, not free before the next freeze: a compaction may be reading the name
}

// place is where a name is: the number of its chunk in the upper half, the offset there in the lower. Its
// length stands in front of it as a uvarint.
type place uint64

// noName is where the empty name is, which comes before all others.
const noName place = 0

// namesChunk is how many bytes of names stand together; a longer name has a chunk to itself.
const namesChunk = 64 << 10

// add returns the place of a copy of the name.
func (n *names) add(name string) place {
	if p, ok := n.slot(len(name)); ok {
		copy(n.at(p), name)
		return p
	}
	need := binary.MaxVarintLen64 + len(name)
	last := len(n.chunks) - 1
	if last < 0 || len(n.chunks[last])+need > namesChunk {
		var chunk []byte
		if last >= 0 { // the first one grows with what is in it: most namespaces are small
			chunk = make([]byte, 0, max(namesChunk, need))
		}
		n.chunks = append(n.chunks, chunk)
		last++
	}
	p := place(last)<<32 | place(len(n.chunks[last]))
	n.chunks[last] = appendString(n.chunks[last], name)
	return p
}

// slot takes the slot of a removed name of that length, if there is one.
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

// at returns the name at a place. It is not to be kept: once the name is removed, another one may take its slot.
func (n *names) at(p place) []byte {
	b := n.chunks[p>>32][uint32(p):]
	length, size := binary.Uvarint(b)
	return b[size : size+int(length)]
}

// remove frees the slot of a name. A new name of the same length can take it after the next freeze, which comes with
// the next compaction. A slot that is not taken is lost until the file is loaded again.
func (n *names) remove(p place) {
	if n.freed == nil {
		n.freed = map[int][]place{}
	}
	length := len(n.at(p))
	n.freed[length] = append(n.freed[length], p)
}

// freeze returns the names as they are now, to be read without a lock. The next freeze must not come before
// the reading has ended.
func (n *names) freeze() *names {
	if n.free == nil {
		n.free = map[int][][]place{}
	}
	for length, slots := range n.freed {
		n.free[length] = append(n.free[length], slots)
	}
	n.freed = nil
	return &names{chunks: slices.Clone(n.chunks)}
}
