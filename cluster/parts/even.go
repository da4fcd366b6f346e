package parts

import "slices"

// even deals pieces to nodes that hold them so that the sum of squares of what nodes have is the least that it can be: an optimal semi-matching (Harvey,
// Ladner, Lovász, Tamir, 2006), by one path for each piece, along which others may pass on a piece, to the node that has the least.
// holders are each piece's nodes, below nodes. It returns each piece's node, -1 where none holds it.
func even(holders [][]int, nodes int) []int {
	loads, dealt := make([]int, nodes), make([]int, len(holders))
	has := make([][]int, nodes) // pieces of each node
	by := make([]int, nodes)    // the piece that would come to a node; -1: the search has not come there
	for i := range holders {
		for n := range by {
			by[n] = -1
		}
		least, search := -1, []int{i}
		for at := 0; at < len(search); at++ {
			for _, n := range holders[search[at]] {
				if by[n] >= 0 {
					continue
				}
				if by[n] = search[at]; least < 0 || loads[n] < loads[least] {
					least = n
				}
				search = append(search, has[n]...)
			}
		}
		dealt[i] = -1
		if least < 0 {
			continue
		}
		loads[least]++
		for n := least; n >= 0; {
			piece := by[n]
			from := dealt[piece]
			if from >= 0 {
				has[from] = slices.DeleteFunc(has[from], func(k int) bool { return k == piece })
			}
			dealt[piece], has[n] = n, append(has[n], piece)
			n = from
		}
	}
	return dealt
}
