package sampling

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// cloned is a deep copy of what b is made of.
func cloned(b *Batch) *Batch {
	c := &Batch{ID: b.ID, Seeds: slices.Clone(b.Seeds), Targets: slices.Clone(b.Targets), LossWeights: slices.Clone(b.LossWeights)}
	for _, k := range b.Blocks {
		k.Indptr, k.Indices, k.Weights = slices.Clone(k.Indptr), slices.Clone(k.Indices), slices.Clone(k.Weights)
		k.EdgeIDs, k.SrcIDs = slices.Clone(k.EdgeIDs), slices.Clone(k.SrcIDs)
		c.Blocks = append(c.Blocks, k)
	}
	return c
}

// exported compares what there is to a batch.
func exported(a, b *Batch) bool {
	return slices.Equal(a.Seeds, b.Seeds) && slices.Equal(a.Targets, b.Targets) && slices.Equal(a.LossWeights, b.LossWeights) &&
		reflect.DeepEqual(a.Blocks, b.Blocks)
}

// A batch that owns its memory can be changed anywhere, and changes nothing else: neither
// the graph nor other blocks nor its nodes.
func TestOwn(t *testing.T) {
	g := &graph.Graph{Indptr: []int64{0, 2, 4, 5, 7}, Indices: []uint32{1, 2, 0, 3, 0, 1, 2}}
	whole := graph.WholeGraph(g)
	block := new(Batch)
	nodes := block.Nodes(4)
	copy(nodes, []uint32{3, 1, 0, 2})
	square := graph.Block{NumDst: 4, NumSrc: 4, Indptr: slices.Clone(g.Indptr), Indices: slices.Clone(g.Indices), Weights: make([]float32, 7), EdgeIDs: make([]int64, 7), SrcIDs: nodes}
	block.Seeds, block.LossWeights, block.Blocks = nodes[:2], square.Weights[:2], []graph.Block{square, square}
	for name, b := range map[string]*Batch{
		"the graph": {Seeds: []uint32{2, 0}, Targets: []uint32{2, 0}, Blocks: []graph.Block{whole, whole}},
		"a block":   block,
	} {
		before, text := cloned(b), cloned(b)
		hash := slices.Clone(g.Indices)
		if err := b.CheckOf(g, true); err != nil {
			t.Fatal(err)
		}
		b.Own()
		if !exported(b, before) {
			t.Errorf("%s: another batch", name)
		}
		b.Blocks[0].Keep(func(dst, _ uint32, _ int) bool { return dst != 0 })
		b.Seeds[0]++
		if k := &b.Blocks[1]; !reflect.DeepEqual(*k, text.Blocks[1]) || !slices.Equal(g.Indices, hash) || !slices.Equal(b.Inputs(), text.Inputs()) {
			t.Errorf("%s: taking entries out of block 0 changes more", name)
		}
		b.Seeds[0]--
		if k := &b.Blocks[0]; len(k.Indices) != 5 || k.Indptr[1] != 0 || k.Indptr[4] != 5 || !slices.Equal(k.Indices, g.Indices[2:]) || k.Weights != nil && (len(k.Weights) != 5 || len(k.EdgeIDs) != 5) {
			t.Errorf("%s: %+v is left", name, k)
		}
		b.Own()
		b.KeepSeeds(func(i int, seed uint32) bool { return seed != before.Seeds[0] })
		if len(b.Seeds) != 1 || b.Seeds[0] != before.Seeds[1] || len(b.Targets) != 1 || b.CheckOf(g, true) != nil || (b.LossWeights != nil) != (before.LossWeights != nil) || len(b.LossWeights) > 1 {
			t.Errorf("%s: seeds %v in rows %v, %v", name, b.Seeds, b.Targets, b.CheckOf(g, true))
		}
		b.KeepSeeds(func(int, uint32) bool { return false })
		if len(b.Seeds) != 0 || b.Targets == nil || b.Check() != nil {
			t.Errorf("%s: without seeds: %v, %v", name, b.Targets, b.Check())
		}
	}
}

// Each thing that does not fit together is refused.
func TestCheckOf(t *testing.T) {
	g := &graph.Graph{Indptr: []int64{0, 2, 4, 5, 7}, Indices: []uint32{1, 2, 0, 3, 0, 1, 2}}
	batch := func() *Batch {
		nodes := []uint32{3, 1, 0}
		return &Batch{Seeds: []uint32{3}, Blocks: []graph.Block{
			{NumDst: 2, NumSrc: 3, Indptr: []int64{0, 1, 3}, Indices: []uint32{1, 2, 0}, EdgeIDs: []int64{6, 2, 3}, SrcIDs: nodes},
			{NumDst: 1, NumSrc: 2, Indptr: []int64{0, 1}, Indices: []uint32{1}, SrcIDs: nodes[:2]},
		}}
	}
	if err := batch().CheckOf(g, true); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(b *Batch){
		"it has no block":                          func(b *Batch) { b.Blocks = nil },
		"block 1: 3 sources but the block before":  func(b *Batch) { b.Blocks[1].NumSrc, b.Blocks[1].SrcIDs = 3, b.Inputs() },
		"block 1: its sources are not the first":   func(b *Batch) { b.Blocks[1].SrcIDs = []uint32{3, 2} },
		"block 1: its sources are not":             func(b *Batch) { b.Blocks[1].SrcIDs = nil },
		"block 0: 2 ids of 3 sources":              func(b *Batch) { b.Blocks[0].SrcIDs = b.Inputs()[:2] },
		"block 0: entry 2 is source 3 of 3":        func(b *Batch) { b.Blocks[0].Indices[2] = 3 },
		"block 0: 1 weights for 3 entries":         func(b *Batch) { b.Blocks[0].Weights = []float32{1} },
		"block 0: 2 edge ids for 3 entries":        func(b *Batch) { b.Blocks[0].EdgeIDs = b.Blocks[0].EdgeIDs[1:] },
		"block 0: row pointers do not span":        func(b *Batch) { b.Blocks[0].Indptr[2] = 2 },
		"block 0: row pointer 2 decreases":         func(b *Batch) { b.Blocks[0].Indptr[1], b.Blocks[0].Indptr[2] = 4, 3 },
		"block 0: 4 destinations, 3 sources":       func(b *Batch) { b.Blocks[0].NumDst = 4 },
		"block 0: entry 1 is edge 7 of 7":          func(b *Batch) { b.Blocks[0].EdgeIDs[1] = 7 },
		"block 0: entry 0 is edge -1":              func(b *Batch) { b.Blocks[0].EdgeIDs[0] = -1 },
		"node 4 is out of range [0, 4)":            func(b *Batch) { b.Inputs()[2] = 4 },
		"2 seeds but 1 outputs":                    func(b *Batch) { b.Seeds = []uint32{3, 1} },
		"2 targets for 1 seeds":                    func(b *Batch) { b.Targets = []uint32{0, 0} },
		"target 0 is row 1 of 1":                   func(b *Batch) { b.Targets = []uint32{1} },
		"seed 3 is there twice":                    func(b *Batch) { b.Seeds, b.Targets = []uint32{3, 3}, []uint32{0, 0} },
		"2 loss weights for 1 seeds":               func(b *Batch) { b.LossWeights = []float32{1, 2} },
		"seed 0 is node 1, and its output that of": func(b *Batch) { b.Seeds[0] = 1 },
		"block 0 names no sources, and has 3 of 4": func(b *Batch) { b.Blocks[0].SrcIDs, b.Blocks[1].SrcIDs = nil, nil },
	} {
		b := batch()
		change(b)
		if err := b.CheckOf(g, true); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

// Of a link both ends are said to be joined, or neither.
func TestLinkEnds(t *testing.T) {
	for says, positive := range map[string][]bool{
		"": {true, true, false, false}, "of link 0 only one end": {true, false, false, false}, "of link 1 only one end": {true, true, false, true},
		"4 ends of links": {true, true},
	} {
		nodes := []uint32{3, 1, 0, 2}
		b := &Batch{Seeds: nodes, Targets: []uint32{0, 1, 2, 3}, Positive: positive, Blocks: []graph.Block{{NumDst: 4, NumSrc: 4, Indptr: make([]int64, 5), SrcIDs: nodes}}}
		if err := b.Check(); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v: %v", positive, err)
		}
	}
}
