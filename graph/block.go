package graph

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
