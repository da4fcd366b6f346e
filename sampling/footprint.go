package sampling

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/internal/footprint"
)

// Footprint is what samplers keep in memory beside the graph and the data, in bytes.
type Footprint struct {
	// Shared is what all samplers of a Prepared use: tables to draw from,
	// estimates of the normalisation, clusters, generations of a cache.
	Shared int64
	// Sampler is what each sampler has before its first batch: at most two bits
	// per node. Its scratch memory grows beside it with its largest batch.
	Sampler int64
}

// Footprint returns what p's samplers keep in memory. For "gns" it draws the first
// generation of the cache, unless that is drawn, and counts as many generations
// as are kept at most; so for "lazy" with mega-batches.
func (p *Prepared) Footprint() Footprint {
	seen := footprint.Seen{}
	size := seen.Bytes
	size(p.given)
	if p.times != nil && p.here == nil {
		size(*p.times)
	}
	if p.caches != nil {
		seen[unsafe.Pointer(p.caches)] = true // it may be in use
	}
	if p.mega != nil {
		seen[unsafe.Pointer(p.mega)] = true
	}
	m := Footprint{Shared: size(p)}
	first := size(p.factory())
	m.Sampler = size(p.factory())
	m.Shared += first - m.Sampler
	if p.caches != nil && p.caches.apart != nil { // bits and ranks of all nodes, and the nodes with their chances
		n := int64(p.g.NumNodes())
		m.Shared += size(p.caches.p) + keepGenerations*(n/8+n/16+8*int64(p.caches.size))
	} else if p.caches != nil {
		m.Shared += 2*size(p.caches.p) + keepGenerations*size(p.caches.At(0)) // one p for the keys of the generation that is drawn
	}
	if p.mega != nil {
		if first, err := p.mega.at(0); err == nil { // Sample reports it
			m.Shared += keepMegaBatches * size(first)
		}
	}
	return m
}
