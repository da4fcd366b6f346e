package features

import "slices"

// plan is a read cut into runs. Its memory is reused.
type plan struct {
	keys, spare []uint64 // id<<32 | slot, sorted
	runs        []run
}

// run is keys[first:last], read by one call.
type run struct {
	batch       *readBatch
	first, last int32
}

const (
	// gapBytes is how much that nobody asked for is read to save a call.
	gapBytes = 4096
	// runBytes bounds one call.
	runBytes = 256 << 10
)

// make sorts the rows of r by id and merges those that are near each other.
func (p *plan) make(r *Request, rowBytes int) {
	p.keys = p.keys[:0]
	for i, id := range r.IDs {
		p.keys = append(p.keys, uint64(id)<<32|uint64(uint32(r.slot(i))))
	}
	slices.Sort(p.keys)
	p.runs = p.runs[:0]
	for i := 0; i < len(p.keys); {
		first := i
		start, last := int64(p.keys[i]>>32), int64(p.keys[i]>>32)
		for i++; i < len(p.keys); i++ {
			id := int64(p.keys[i] >> 32)
			if (id-last-1)*int64(rowBytes) > gapBytes || (id+1-start)*int64(rowBytes) > runBytes {
				break
			}
			last = id
		}
		p.runs = append(p.runs, run{first: int32(first), last: int32(i)})
	}
}
