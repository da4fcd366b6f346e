package graph

import "fmt"

// Block is one bipartite layer of a mini-batch. Destination nodes are a prefix
// of the source nodes: local id i < NumDst is the same node on both sides. Row
// i of the CSR lists the local ids of the sources that destination i
// aggregates. A square block (NumDst == NumSrc) is a subgraph; one that aliases
// a Graph's own arrays is the whole graph.
type Block struct {
	NumDst, NumSrc int
	Indptr         []int64   // len NumDst+1
	Indices        []uint32  // local source ids in [0, NumSrc)
	Weights        []float32 // per entry, from the sampler; nil: all 1
	EdgeIDs        []int64   // per entry, position in the Graph's CSC; nil when not asked for
	SrcIDs         []uint32  // global ids of the sources, len NumSrc; nil: local ids are global ids
}

// NumEdges returns the number of entries.
func (b *Block) NumEdges() int { return len(b.Indices) }

// WholeGraph returns the block that aggregates all of g. It aliases g.
func WholeGraph(g *Graph) Block {
	n := g.NumNodes()
	return Block{NumDst: n, NumSrc: n, Indptr: g.Indptr, Indices: g.Indices}
}

// Keep takes the entries out of b for which keep is false, in place: src of the row of
// dst, both local ids, which is entry at of Indices, Weights and EdgeIDs. It must not be
// called for a block that others read, such as one that aliases a graph.
func (b *Block) Keep(keep func(dst, src uint32, at int) bool) {
	kept, begin := 0, 0
	for v := range b.NumDst {
		end := int(b.Indptr[v+1])
		for e := begin; e < end; e++ {
			u := b.Indices[e]
			if !keep(uint32(v), u, e) {
				continue
			}
			b.Indices[kept] = u
			if b.Weights != nil {
				b.Weights[kept] = b.Weights[e]
			}
			if b.EdgeIDs != nil {
				b.EdgeIDs[kept] = b.EdgeIDs[e]
			}
			kept++
		}
		b.Indptr[v+1], begin = int64(kept), end
	}
	b.Indices = b.Indices[:kept]
	if b.Weights != nil {
		b.Weights = b.Weights[:kept]
	}
	if b.EdgeIDs != nil {
		b.EdgeIDs = b.EdgeIDs[:kept]
	}
}

// Check reports arrays that do not fit each other, or ids outside of the block.
func (b *Block) Check() error {
	if b.NumDst < 0 || b.NumSrc < b.NumDst {
		return fmt.Errorf("%d destinations, %d sources", b.NumDst, b.NumSrc)
	}
	if len(b.Indptr) != b.NumDst+1 || b.Indptr[0] != 0 || b.Indptr[b.NumDst] != int64(len(b.Indices)) {
		return fmt.Errorf("row pointers do not span the %d entries", len(b.Indices))
	}
	for i := range b.NumDst {
		if b.Indptr[i+1] < b.Indptr[i] {
			return fmt.Errorf("row pointer %d decreases", i+1)
		}
	}
	for i, u := range b.Indices {
		if int64(u) >= int64(b.NumSrc) {
			return fmt.Errorf("entry %d is source %d of %d", i, u, b.NumSrc)
		}
	}
	if b.Weights != nil && len(b.Weights) != len(b.Indices) {
		return fmt.Errorf("%d weights for %d entries", len(b.Weights), len(b.Indices))
	}
	if b.EdgeIDs != nil && len(b.EdgeIDs) != len(b.Indices) {
		return fmt.Errorf("%d edge ids for %d entries", len(b.EdgeIDs), len(b.Indices))
	}
	if b.SrcIDs != nil && len(b.SrcIDs) != b.NumSrc {
		return fmt.Errorf("%d ids of %d sources", len(b.SrcIDs), b.NumSrc)
	}
	return nil
}
