package compute

import (
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// trimShare is the largest share of a batch's rows and entries that must be left
// for trimming it to be worth its own cost.
const trimShare = 0.8

// trimmer leaves out of a batch on a subgraph or the whole graph, whose layers
// have one square block, the rows that no target's output depends on. It numbers
// the nodes by their distance to the targets and within a distance as they were
// numbered before, so that each layer's block is a prefix of one matrix:
// layer l of L computes the nodes within L-1-l hops of a target.
//
// The order of a row's entries, and so the sum over them, stays as it was. What is
// left out is a function of the batch alone.
type trimmer struct {
	in     Input         // the last trimmed batch
	blocks []graph.Block // of in
	source graph.Block   // what blocks were made of
	edges  bool          // blocks have EdgeIDs
	// repeated counts the batches in a row that had the same blocks as the one
	// before, which lie where they lay: batches of the whole graph.
	repeated int
	plain    bool // the batch named no rows of features: in's are a function of blocks

	hops    []uint32 // per node, how many hops from a target; far: more than counted
	sizes   []int    // nodes within as many hops
	order   []uint32 // the nodes by distance
	place   []uint32 // their positions in order
	ids     []uint32
	rows    []uint32
	targets []uint32
	first   []uint32 // backs targets that were not given
	indptr  []int64
	indices []uint32
	weights []float32
	edgeIDs []int64
}

// far marks nodes that are not reached.
const far = ^uint32(0)

// trim returns in without what its targets do not depend on, or in itself if
// that is nearly nothing. in must have been checked; the result is valid until the
// next call.
func (t *trimmer) trim(in *Input, targets int, g *graph.Graph, edges bool) *Input {
	b := &in.Blocks[0]
	if targets == b.NumDst || !sameSquare(in.Blocks) {
		t.repeated = 0
		return in
	}
	asked := in.Targets
	if asked == nil {
		t.first = t.first[:0]
		for i := range targets {
			t.first = append(t.first, uint32(i))
		}
		asked = t.first
	}
	whole := isWhole(b, g) && b.Weights == nil
	if whole && isWhole(&t.source, g) && t.edges == edges && len(t.blocks) == len(in.Blocks) && t.numbered(asked) {
		t.repeated++
	} else {
		t.source, t.repeated = graph.Block{}, 0
		if !t.number(b, asked, len(in.Blocks)) {
			return in
		}
		t.cut(b, len(in.Blocks), edges && isComplete(b, g))
		t.edges = edges
		if whole {
			t.source = *b
		}
	}
	t.targets = t.targets[:0]
	for _, v := range asked {
		t.targets = append(t.targets, t.place[v])
	}
	t.in, t.plain = *in, in.Rows == nil
	t.in.Blocks, t.in.Targets = t.blocks, t.targets
	t.rows = t.rows[:0]
	for _, v := range t.order {
		if in.Rows != nil {
			v = in.Rows[v]
		}
		t.rows = append(t.rows, v)
	}
	t.in.Rows = t.rows
	return &t.in
}

// sameSquare reports whether all blocks are one square block: the same arrays, or
// copies of them that came through a message.
func sameSquare(blocks []graph.Block) bool {
	a := &blocks[0]
	if a.NumDst != a.NumSrc {
		return false
	}
	for i := range blocks[1:] {
		b := &blocks[i+1]
		if a.NumDst != b.NumDst || a.NumSrc != b.NumSrc || !same(a.Indptr, b.Indptr) || !same(a.Indices, b.Indices) ||
			!same(a.Weights, b.Weights) || !same(a.EdgeIDs, b.EdgeIDs) || !same(a.SrcIDs, b.SrcIDs) {
			return false
		}
	}
	return true
}

// same is slices.Equal, without a look at the elements where both are one array,
// and with nil for itself alone.
func same[E comparable](a, b []E) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	return unsafe.SliceData(a) == unsafe.SliceData(b) || slices.Equal(a, b)
}

// number orders the nodes of b by their distance to the targets. It reports
// whether the rest is worth leaving out; a target that occurs twice is for the
// loss to find.
func (t *trimmer) number(b *graph.Block, targets []uint32, layers int) bool {
	n := b.NumDst
	t.hops = resized(t.hops, n)
	for i := range t.hops {
		t.hops[i] = far
	}
	for _, v := range targets {
		if t.hops[v] == 0 {
			return false
		}
		t.hops[v] = 0
	}
	t.order, t.sizes = t.order[:0], t.sizes[:0]
	left := 0 // rows and entries
	entries := 0
	for hop := range uint32(layers + 1) {
		begin := len(t.order)
		for v, h := range t.hops {
			if h == hop {
				t.order = append(t.order, uint32(v))
			}
		}
		t.sizes = append(t.sizes, len(t.order))
		if int(hop) == layers {
			break
		}
		for _, v := range t.order[begin:] {
			row := b.Indices[b.Indptr[v]:b.Indptr[v+1]]
			entries += len(row)
			for _, u := range row {
				t.hops[u] = min(t.hops[u], hop+1)
			}
		}
		left += len(t.order) + entries
	}
	if float64(left) > trimShare*float64(layers)*float64(n+len(b.Indices)) {
		return false
	}
	t.place = resized(t.place, n)
	for i, v := range t.order {
		t.place[v] = uint32(i)
	}
	return true
}

// numbered reports whether targets are those that number was called with, in any order: each epoch has its own. One that occurs twice is
// for the loss to find.
func (t *trimmer) numbered(targets []uint32) bool {
	return len(targets) == t.sizes[0] && !slices.ContainsFunc(targets, func(v uint32) bool { return t.hops[v] != 0 })
}

// cut makes the blocks out of b; edges says that it is the whole graph, in its
// order, and that EdgeIDs are wanted.
func (t *trimmer) cut(b *graph.Block, layers int, edges bool) {
	computed := t.order[:t.sizes[layers-1]]
	t.indptr = append(t.indptr[:0], 0)
	entries := 0
	for _, v := range computed {
		entries += int(b.Indptr[v+1] - b.Indptr[v])
	}
	t.indices, t.weights, t.edgeIDs, t.ids = resized(t.indices, entries)[:0], t.weights[:0], t.edgeIDs[:0], t.ids[:0]
	if b.Weights != nil {
		t.weights = resized(t.weights, entries)[:0]
	}
	if b.EdgeIDs != nil || edges {
		t.edgeIDs = resized(t.edgeIDs, entries)[:0]
	}
	for _, v := range computed {
		begin, end := b.Indptr[v], b.Indptr[v+1]
		for _, u := range b.Indices[begin:end] {
			t.indices = append(t.indices, t.place[u])
		}
		if b.Weights != nil {
			t.weights = append(t.weights, b.Weights[begin:end]...)
		}
		if b.EdgeIDs != nil {
			t.edgeIDs = append(t.edgeIDs, b.EdgeIDs[begin:end]...)
		} else if edges {
			for e := begin; e < end; e++ {
				t.edgeIDs = append(t.edgeIDs, e)
			}
		}
		t.indptr = append(t.indptr, int64(len(t.indices)))
	}
	for _, v := range t.order {
		t.ids = append(t.ids, global(b, v))
	}
	t.blocks = resized(t.blocks, layers)
	for l := range t.blocks {
		dst, src := t.sizes[layers-1-l], t.sizes[layers-l]
		n := t.indptr[dst]
		c := graph.Block{NumDst: dst, NumSrc: src, Indptr: t.indptr[:dst+1], Indices: t.indices[:n], SrcIDs: t.ids[:src]}
		if b.Weights != nil {
			c.Weights = t.weights[:n]
		}
		if b.EdgeIDs != nil || edges {
			c.EdgeIDs = t.edgeIDs[:n]
		}
		t.blocks[l] = c
	}
}

// held returns the bytes that t holds on to.
func (t *trimmer) held() int64 {
	n := cap(t.hops) + cap(t.order) + cap(t.place) + cap(t.ids) + cap(t.rows) + cap(t.targets) + cap(t.first) + cap(t.indices) + cap(t.weights)
	return 4*int64(n) + 8*int64(cap(t.indptr)+cap(t.edgeIDs))
}
