package graph

// stretch is of how many nodes that follow each other entries are counted.
const stretch = 1 << 8

// Stretches counts the entries before each stretch of nodes, and all.
func (g *Graph) Stretches() (before []int64) {
	indptr := g.Indptr
	for i := 0; i < len(indptr)-1; i += stretch {
		before = append(before, indptr[i])
	}
	return append(before, indptr[len(indptr)-1])
}

// MostEntries returns, by what Stretches counted, of n nodes, the most entries of so many rows that begin at a multiple of as many, or up to two stretches more.
func MostEntries(before []int64, n, rows int64) (most int64) {
	for i := int64(0); i < n; i += max(rows, 1) {
		most = max(most, before[(min(i+rows, n)+stretch-1)/stretch]-before[i/stretch])
	}
	return most
}
