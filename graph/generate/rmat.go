package generate

import (
	"context"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/rng"
)

// RMATOptions describe an R-MAT graph.
type RMATOptions struct {
	Scale int // log2 of the number of nodes
	Edges int // undirected edges to draw, before loops and duplicates go
	Seed  uint64

	// FeatureDim, when above 0, adds that many random float32 features per node.
	FeatureDim int
	// Classes, when above 0, adds uniformly random labels, and splits.
	Classes int
	// TrainFraction and ValidFraction of the nodes are for training and
	// validation, the rest for testing. Both 0: 0.6 and 0.2.
	TrainFraction, ValidFraction float64
}

// Bytes returns about how much memory RMAT takes; 0 for a scale that it refuses.
func (o RMATOptions) Bytes() int64 {
	if o.Scale < 0 || o.Scale > maxScale {
		return 0
	}
	return generatedBytes(1<<o.Scale, int64(o.Edges), o.FeatureDim)
}

const maxScale = 31

// RMAT generates a symmetric R-MAT graph (Chakrabarti, Zhan and Faloutsos,
// 2004) with the parameters of Graph500, a=0.57 b=0.19 c=0.19 d=0.05, permuted
// node ids, and neither loops nor parallel edges. Features and labels are
// random: they measure speed, and nothing can be learnt from them. The same
// options give the same bytes on any machine and any number of cores.
func RMAT(ctx context.Context, o RMATOptions) (*graph.Dataset, error) {
	err := checkInts(
		intSetting{"scale", int64(o.Scale), 0, maxScale},
		intSetting{"edges", int64(o.Edges), 0, 1 << 40},
		intSetting{"feature dim", int64(o.FeatureDim), 0, arrays.MaxColumns},
		intSetting{"classes", int64(o.Classes), 0, arrays.MaxClasses},
	)
	if err != nil {
		return nil, err
	}
	if o.TrainFraction == 0 && o.ValidFraction == 0 {
		o.TrainFraction, o.ValidFraction = 0.6, 0.2
	}
	if err := checkFractions(o.TrainFraction, o.ValidFraction); err != nil {
		return nil, err
	}
	n := 1 << o.Scale
	// Key(seed) is the splitmix64 sequence that starts at seed, so that this
	// graph is the one that other programs drawing from it in this order get:
	// first the permutation, then one draw per edge and level.
	k := rng.Key(o.Seed)
	perm := make([]uint32, n)
	for i := range perm {
		perm[i] = uint32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := k.Uint64(uint64(n-1-i)) % uint64(i+1)
		perm[i], perm[j] = perm[j], perm[i]
	}
	g, err := symmetricGraph(n, generatedEdges(ctx, int64(o.Edges), func(i int64) (uint32, uint32, bool) {
		u, v := rmatEdge(k, uint64(n-1)+uint64(i)*uint64(o.Scale), o.Scale)
		return perm[u], perm[v], u != v
	}))
	if err != nil {
		return nil, err
	}
	ds := &graph.Dataset{Name: fmt.Sprintf("rmat-%d", o.Scale), Graph: g}
	if o.FeatureDim > 0 {
		ds.NodeFeatures = classFeatures(n, o.FeatureDim, nil, 0, o.Seed)
	}
	if o.Classes > 0 {
		labels := rng.New(o.Seed, streamLabels)
		ds.Labels = &graph.Labels{NumClasses: o.Classes, Class: make([]int32, n)}
		for v := range ds.Labels.Class {
			ds.Labels.Class[v] = int32(labels.Uintn(uint64(v), uint64(o.Classes)))
		}
		ds.Train, ds.Valid, ds.Test = splitNodes(n, o.TrainFraction, o.ValidFraction, o.Seed)
	}
	return fingerprinted(ctx, ds)
}

// The cumulative probabilities of the quadrants, in units of 2^-53: a draw of
// 53 bits x is below the bound of probability p when float64(x)/2^53 < p.
var rmatBounds = func() (b [3]uint64) {
	for i, p := range []float64{0.57, 0.76, 0.95} {
		b[i] = uint64(math.Ceil(p * (1 << 53)))
	}
	return b
}()

// rmatEdge draws an edge, a quadrant per level, from the draws first, first+1, …
func rmatEdge(k rng.Key, first uint64, scale int) (u, v uint32) {
	a, b, c := rmatBounds[0], rmatBounds[1], rmatBounds[2]
	for l := range uint64(scale) {
		x := k.Uint64(first+l) >> 11
		u, v = u<<1, v<<1
		// Without branches that cannot be predicted: d sets both bits, c the
		// source's, b the destination's.
		geA, geB, geC := ge(x, a), ge(x, b), ge(x, c)
		u |= geB
		v |= (geA ^ geB) | geC
	}
	return u, v
}

// ge returns 1 if x >= y, else 0, for values below 2^63.
func ge(x, y uint64) uint32 { return uint32((x-y)>>63) ^ 1 }
