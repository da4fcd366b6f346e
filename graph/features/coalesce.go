package features

// plan is a read of a disk, cut into runs. Its memory is reused.
type plan struct {
	keys, spare []uint64 // id<<32 | slot, sorted by id
	runs        []run
}

// run is keys[first:last], read by one call.
type run struct{ first, last int32 }

// A disk was measured at about 12 µs for a read of up to 4 KiB and 0.9 ns for
// each byte more, so reading a gap costs less than another read up to some
// 14 KiB; local disks come to 6 to 8.
const (
	gapBytes = 8 << 10   // what nobody asked for is read to save a call
	runBytes = 256 << 10 // the longest call
	runRows  = 256       // and the most rows of one
)

// make sorts the rows of r by id and merges those that are near each other in
// the file; the ids of a run are distinct.
func (p *plan) make(r *Request, rowBytes int) {
	p.keys = p.keys[:0]
	for i, id := range r.IDs {
		p.keys = append(p.keys, uint64(id)<<32|uint64(uint32(r.slot(i))))
	}
	p.sort()
	p.runs = p.runs[:0]
	for i := 0; i < len(p.keys); {
		first := i
		start := int64(p.keys[i] >> 32)
		last := start
		for i++; i < len(p.keys) && i-first < runRows; i++ {
			id := int64(p.keys[i] >> 32)
			if id == last || (id-last-1)*int64(rowBytes) > gapBytes || (id+1-start)*int64(rowBytes) > runBytes {
				break
			}
			last = id
		}
		p.runs = append(p.runs, run{int32(first), int32(i)})
	}
}

// sort sorts the keys by id, by radix: three passes of 11 bits, less those in
// which all ids agree.
func (p *plan) sort() {
	const bits = 11
	if cap(p.spare) < len(p.keys) {
		p.spare = make([]uint64, len(p.keys), cap(p.keys))
	}
	from, to := p.keys, p.spare[:len(p.keys)]
	var count [3][1 << bits]uint32
	for _, k := range from {
		id := uint32(k >> 32)
		count[0][id&(1<<bits-1)]++
		count[1][id>>bits&(1<<bits-1)]++
		count[2][id>>(2*bits)]++
	}
	for pass := range count {
		c, shift := &count[pass], 32+pass*bits
		if len(from) == 0 || c[from[0]>>shift&(1<<bits-1)] == uint32(len(from)) {
			continue
		}
		sum := uint32(0)
		for i, n := range c {
			c[i], sum = sum, sum+n
		}
		for _, k := range from {
			d := k >> shift & (1<<bits - 1)
			to[c[d]] = k
			c[d]++
		}
		from, to = to, from
	}
	p.keys, p.spare = from, to
}
