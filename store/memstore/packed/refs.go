package packed

// Refs is a set of references to names. The zero value is empty.
type Refs struct {
	chunks []*[namesChunk / 64]uint64 // a bit for each offset
	n      int
}

// Add adds a reference, and reports whether it was not in the set.
func (r *Refs) Add(at Ref) bool {
	chunk, offset := int(at>>32), at&(1<<32-1)
	for len(r.chunks) <= chunk {
		r.chunks = append(r.chunks, new([namesChunk / 64]uint64))
	}
	word, bit := &r.chunks[chunk][offset/64], uint64(1)<<(offset%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	r.n++
	return true
}

// Len returns the number of references.
func (r *Refs) Len() int { return r.n }
