package sampling

// visitCounter finds the nodes that the walks of a row visit most.
type visitCounter struct {
	keys, order []uint32 // of the kernel
	seen        idMap    // of one row
	nodes       []uint32 // that it visited, itself first
	counts      []uint32 // how often
	starts      []uint32 // by number of visits, where the nodes visited so often begin in top
	top         []visited
}

// visited is a node and how often it was visited.
type visited struct{ node, times uint32 }

// mostVisits is how many visits a kernel counts: comparing all with all is slower where there are many more.
const mostVisits = 128

// most returns the k most visited nodes other than home, the more visited and among equals the earlier first.
// It may destroy visits; the result is valid until the next call.
func (c *visitCounter) most(visits []uint32, home uint32, k int) []visited {
	if !simd512 || len(visits) == 0 || len(visits) > mostVisits {
		return c.mostGo(visits, home, k)
	}
	c.keys, c.order = resize(c.keys, mostVisits+16), resize(c.order, mostVisits+16)
	n := mostVisitedAVX512(&c.order[0], &c.keys[0], &visits[0], len(visits), home, k)
	c.top = resize(c.top, n)
	for i, key := range c.order[:n] {
		c.top[i] = visited{visits[^key&(1<<16-1)], key >> 16}
	}
	return c.top
}

// mostGo numbers nodes as they were first visited, and sorts them by counting.
func (c *visitCounter) mostGo(visits []uint32, home uint32, k int) []visited {
	c.seen.clear()
	c.seen.reserve(nil, len(visits)+1)
	c.seen.put(home)
	c.nodes = c.seen.number(visits, append(reserve(c.nodes[:0], len(visits)+1), home))
	c.counts = resize(c.counts, len(c.nodes))
	clear(c.counts)
	for _, i := range visits {
		c.counts[i]++
	}
	c.starts = resize(c.starts, len(visits)+1)
	clear(c.starts)
	most := uint32(0)
	for _, n := range c.counts[1:] {
		c.starts[n]++
		most = max(most, n)
	}
	for n, at := most, uint32(0); n > 0; n-- {
		c.starts[n], at = at, at+c.starts[n]
	}
	c.top = resize(c.top, len(c.nodes)-1)
	for i, n := range c.counts[1:] {
		c.top[c.starts[n]] = visited{c.nodes[i+1], n}
		c.starts[n]++
	}
	return c.top[:min(k, len(c.top))]
}
