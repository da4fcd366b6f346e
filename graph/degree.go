package graph

import "math/bits"

// DegreeClass is the nodes of which the degree has as many binary digits as the class's place in a list of them says: 0 has none.
type DegreeClass struct {
	Nodes int64 `json:"nodes"`
	Edges int64 `json:"edges"`
}

// CountDegrees adds the rows of g to classes, which may be nil, and returns them.
func (g *Graph) CountDegrees(classes []DegreeClass) []DegreeClass {
	for v := range g.NumNodes() {
		n := g.Indptr[v+1] - g.Indptr[v]
		k := bits.Len64(uint64(n))
		for k >= len(classes) {
			classes = append(classes, DegreeClass{})
		}
		classes[k].Nodes++
		classes[k].Edges += n
	}
	return classes
}
