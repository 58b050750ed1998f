package packed

import (
	"encoding/binary"
	"slices"
)

// Names holds user IDs, or other texts, one after the other in large chunks of memory, without pointers for the garbage
// collector.
type Names struct {
	chunks [][]byte
	free   map[int][][]Ref // freed slots, by the length of their names
	freed  map[int][]Ref   // the same, in use until the next freeze: a compaction may be reading the names
}

// Ref refers to a name by its location: the number of its chunk in the upper half, the offset there in the lower. The
// name is preceded by its length as a uvarint.
type Ref uint64

// NoName refers to the empty name, which comes before all others.
const NoName Ref = 0

// namesChunk is the size of a chunk in bytes. A longer name has a chunk to itself.
const namesChunk = 64 << 10

// NewNames returns names with the empty one alone.
func NewNames() Names {
	n := Names{free: map[int][][]Ref{}, freed: map[int][]Ref{}}
	n.Add("") // at NoName
	return n
}

// Add copies a name and returns a reference to the copy.
func (n *Names) Add(name string) Ref {
	if p, ok := n.slot(len(name)); ok {
		copy(n.At(p), name)
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
	p := Ref(last)<<32 | Ref(len(n.chunks[last]))
	n.chunks[last] = AppendString(n.chunks[last], name)
	return p
}

// slot returns a free slot for a name of the given length, if there is one. It is in use from then on.
func (n *Names) slot(length int) (Ref, bool) {
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

// At returns the name that a reference points to, valid until it is removed: then another name may take its slot.
func (n *Names) At(p Ref) []byte {
	b := n.chunks[p>>32][uint32(p):]
	length, size := binary.Uvarint(b)
	return b[size : size+int(length)]
}

// Remove frees the slot of a name. A new name of the same length can use it after the next freeze.
func (n *Names) Remove(p Ref) {
	length := len(n.At(p))
	n.freed[length] = append(n.freed[length], p)
}

// Freeze returns the names as they are now, to be read without a lock until the next freeze.
func (n *Names) Freeze() *Names {
	for length, slots := range n.freed {
		n.free[length] = append(n.free[length], slots)
	}
	clear(n.freed)
	return &Names{chunks: slices.Clone(n.chunks)}
}

// Chunks returns the number of chunks of memory. It never falls.
func (n *Names) Chunks() int { return len(n.chunks) }

// Slots returns the references to all slots in a chunk, also of those whose names were removed. A slot never goes, and
// new ones are added behind the others.
func (n *Names) Slots(chunk int) (refs []Ref) {
	b := n.chunks[chunk]
	for at := 0; at < len(b); {
		refs = append(refs, Ref(chunk)<<32|Ref(at))
		length, size := binary.Uvarint(b[at:])
		at += size + int(length)
	}
	return refs
}
