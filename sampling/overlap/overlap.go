// Package overlap orders mini-batches so that each shares as many input nodes
// as possible with the one before it (Match-Reorder; FastGL, docs/algorithms.md §7).
//
// The match degree of two batches with input nodes N_i and N_j is
//
//	M_ij = |N_i ∩ N_j| / min(|N_i|, |N_j|)
//
// An Orderer takes the batches of an epoch window by window, in the order of
// their indices, and orders each window greedily. The order depends on the
// batches and the options alone.
package overlap

import "fmt"

// Method is how intersections are counted. It decides the order, so it belongs
// to a run's identity.
type Method uint8

// The methods.
const (
	Auto   Method = iota // Exact for windows of at most ExactWindow batches, else Sketch
	Exact                // every common node is counted
	Sketch               // estimated from the SketchSize nodes of smallest hash of each batch
)

// ExactWindow is the largest window for which Auto counts exactly: up to it a
// batch of 10⁵ inputs costs less than 1 ms.
const ExactWindow = 64

// SketchSize is the number of hashes in a sketch: the standard error of an
// estimated Jaccard index J is √(J(1−J)/SketchSize), at most 0.011.
const SketchSize = 2048

// Part is what the order of batches depends on of a part of one, which may have several. The order
// is the same whether Nodes are all of its distinct input nodes or, by Sketch, those of smallest hash alone.
type Part struct {
	Size  int      // distinct input nodes
	Nodes []uint32 // all of them, or the SketchSize ones of smallest hash, in any order
}

var methodNames = [...]string{"auto", "exact", "sketch"}

// String returns the method's name.
func (m Method) String() string { return methodNames[m] }

// ParseMethod is the inverse of String; empty is Auto.
func ParseMethod(name string) (Method, error) {
	if name == "" {
		return Auto, nil
	}
	for i, n := range methodNames {
		if n == name {
			return Method(i), nil
		}
	}
	return 0, fmt.Errorf("overlap: method %q is not one of auto, exact and sketch", name)
}

// For returns the method that m means for windows of the given size.
func (m Method) For(window int) Method {
	switch {
	case m != Auto:
		return m
	case window <= ExactWindow:
		return Exact
	}
	return Sketch
}

// Degree returns the match degree of two batches, each of distinct nodes. It is
// 0 if one is empty.
func Degree(a, b []uint32) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	in := make(map[uint32]struct{}, len(a))
	for _, u := range a {
		in[u] = struct{}{}
	}
	common := 0
	for _, u := range b {
		if _, ok := in[u]; ok {
			common++
		}
	}
	return float64(common) / float64(min(len(a), len(b)))
}

// share is a match degree as a fraction, so that degrees compare exactly.
type share struct{ common, of uint64 }

// above reports whether s is larger than t. Both parts are below 2³².
func (s share) above(t share) bool {
	if s.of == 0 || t.of == 0 {
		return s.of != 0 && s.common > 0
	}
	return s.common*t.of > t.common*s.of
}
