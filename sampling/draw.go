package sampling

import (
	"math"
	"math/bits"

	"github.com/gnnactor/gnnactor/rng"
)

// drawing is a generation of a cache while it is drawn: the nodes of smallest key
// −ln(U_u)/p(u), which is successive sampling without replacement in proportion to
// p, and every node's neighbours among them. It goes piece by piece, so that whoever
// draws a generation while another serves can let batches pass between the pieces.
type drawing struct {
	c    *Caches
	out  *Cache
	key  rng.Key
	step int
	node int // where the step goes on

	keys    []float64
	shift   int   // what is below a key's highest bits
	counts  []int // of keys by their highest bits
	highest int   // those bits of τ,
	rank    int   // and how many keys with the same are below it
	near    []float64
	tau     float64 // the smallest key that is not taken: a node is in the cache exactly if its key is below it

	inverse []float32 // 1/p_C of each cached node
	hits    []uint32
	linked  int
}

// steps are done one after another. Each goes on from the given node and returns
// the one that it came to.
var steps = [...]func(d *drawing, from int) (to int){
	(*drawing).drawKeys, (*drawing).findTau, (*drawing).take, (*drawing).count, (*drawing).link,
}

// A piece takes some tenths of a millisecond.
const (
	keyPiece  = 1 << 13 // keys to be drawn
	nodePiece = 1 << 17 // keys to be looked at
	edgePiece = 1 << 17 // entries of rows, where
	rowCost   = 4       // each row counts as so many, besides
)

// keyBits is how many of n keys' bits are counted: the sign, the exponent, and up to
// four of the fraction, so that small graphs clear few counts for a generation.
func keyBits(n int) int { return min(max(bits.Len(uint(n)), 12), 16) }

func (d *drawing) bitsOf(key float64) int { return int(math.Float64bits(key) >> d.shift) }

func (c *Caches) begin(generation int) *drawing {
	n := len(c.p)
	return &drawing{
		c: c, key: rng.New(c.seed, purposeCache, uint64(generation)), tau: math.Inf(1),
		keys: make([]float64, n), shift: 64 - keyBits(n), counts: make([]int, 1<<keyBits(n)),
		out: &Cache{Generation: generation, member: make([]uint64, (n+63)/64), rank: make([]uint32, (n+63)/64)},
	}
}

// draw makes a generation.
func (c *Caches) draw(generation int) *Cache {
	d := c.begin(generation)
	for !d.piece() {
	}
	return d.out
}

// Pieces returns how many pieces a generation is drawn in, nearly.
func (c *Caches) Pieces() int {
	n := len(c.p)
	return n/keyPiece + 2*(n/nodePiece) + 2*((len(c.g.Indices)+rowCost*n)/edgePiece) + len(steps)
}

// piece goes on, and reports whether the generation is drawn.
func (d *drawing) piece() bool {
	if d.step < len(steps) {
		if d.node = steps[d.step](d, d.node); d.node == len(d.keys) {
			d.step, d.node = d.step+1, 0
		}
	}
	return d.step == len(steps)
}

func (d *drawing) drawKeys(from int) int {
	to := min(from+keyPiece, len(d.keys))
	for u := from; u < to; u++ {
		k := math.Inf(1) // it cannot be drawn, and is never in the cache
		if p := d.c.p[u]; p > 0 {
			k = exponential(d.key.Uint64(uint64(u))) / p
		}
		d.keys[u] = k
		d.counts[d.bitsOf(k)]++
	}
	return to
}

// findTau collects the keys whose highest bits are τ's, and chooses among them.
func (d *drawing) findTau(from int) int {
	if d.c.size >= len(d.keys) {
		return len(d.keys)
	}
	if from == 0 {
		for d.rank = d.c.size; d.rank >= d.counts[d.highest]; d.highest++ {
			d.rank -= d.counts[d.highest]
		}
		d.near = make([]float64, 0, d.counts[d.highest])
	}
	to := min(from+nodePiece, len(d.keys))
	for _, k := range d.keys[from:to] {
		if d.bitsOf(k) == d.highest {
			d.near = append(d.near, k)
		}
	}
	if to == len(d.keys) {
		d.tau = kthSmallest(d.near, d.rank)
	}
	return to
}

func (d *drawing) take(from int) int {
	to := min(from+nodePiece, len(d.keys))
	c := d.out
	for u := from; u < to; u++ {
		if u%64 == 0 {
			c.rank[u/64] = uint32(len(c.Nodes))
		}
		if d.keys[u] < d.tau {
			p := float32(d.c.chance(d.c.p[u], d.tau))
			c.member[u/64] |= 1 << (u % 64)
			c.Nodes = append(c.Nodes, uint32(u))
			c.chance = append(c.chance, p)
			d.inverse = append(d.inverse, 1/p)
		}
	}
	return to
}

// count and link list every node's cached neighbours. They read the rows in
// order, one bit per entry: on graphs with hubs, which is where caches pay, that is
// faster than following the edges out of C, and needs no transpose of the graph.

func (d *drawing) count(from int) int {
	c, g := d.out, d.c.g
	if from == 0 {
		c.indptr = make([]int64, len(g.Indptr))
	}
	v := from
	for work := 0; v < len(d.keys) && work < edgePiece; v++ {
		row, count := g.InNeighbors(uint32(v)), uint64(0)
		for _, u := range row {
			count += c.member[u/64] >> (u % 64) & 1
		}
		c.indptr[v+1] = c.indptr[v] + int64(count)
		work += len(row) + rowCost
	}
	return v
}

func (d *drawing) link(from int) int {
	c, g := d.out, d.c.g
	if from == 0 {
		c.rows = make([]CachedNeighbor, c.indptr[len(d.keys)])
	}
	v := from
	for work := 0; v < len(d.keys) && work < edgePiece; v++ {
		row := g.InNeighbors(uint32(v))
		d.hits = resize(d.hits, len(row)+8)
		n := filter{c.member, 1, 0}.members(d.hits, row)
		for _, i := range d.hits[:n] {
			c.rows[d.linked] = CachedNeighbor{i, d.inverse[c.Slot(row[i])]}
			d.linked++
		}
		work += len(row) + rowCost
	}
	return v
}
