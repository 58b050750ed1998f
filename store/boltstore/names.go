package boltstore

import (
	"encoding/binary"
	"slices"
)

// names holds user IDs one after the other in large pieces of memory, which are free of pointers: the garbage
// collector, which would look at each of millions of strings every time, does not look into them.
type names struct {
	chunks [][]byte
	free   map[int][]place // by length: rooms of names that are gone
	gone   map[int][]place // the same; a fold under way may still read the name
}

// place is where a name is: the number of its chunk in the upper half, the offset there in the lower. Its
// length stands in front of it as a uvarint.
type place uint64

// namesChunk is how many bytes of names stand together; a longer name has a chunk to itself.
const namesChunk = 64 << 10

// add returns the place of a copy of the name.
func (n *names) add(name string) place {
	if free := n.free[len(name)]; len(free) > 0 {
		last := len(free) - 1
		n.free[len(name)] = free[:last]
		copy(n.at(free[last]), name)
		return free[last]
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

// at returns the name at a place. It is not to be kept: when the name is gone, another one may take its room.
func (n *names) at(p place) []byte {
	b := n.chunks[p>>32][uint32(p):]
	length, size := binary.Uvarint(b)
	return b[size : size+int(length)]
}

// remove gives up a name. A name of the same length can have its room after the next freeze, and not sooner:
// until then the room is lost, but for no more names than the log has changes.
func (n *names) remove(p place) {
	if n.gone == nil {
		n.gone = map[int][]place{}
	}
	length := len(n.at(p))
	n.gone[length] = append(n.gone[length], p)
}

// freeze returns the names as they are now. They can be read, without a lock, until the next freeze.
func (n *names) freeze() *names {
	n.reuse()
	return &names{chunks: slices.Clone(n.chunks)}
}

// reuse makes the rooms of names that are gone available.
func (n *names) reuse() {
	if n.free == nil {
		n.free = n.gone
	} else {
		for length, rooms := range n.gone {
			n.free[length] = append(n.free[length], rooms...)
		}
	}
	n.gone = nil
}
