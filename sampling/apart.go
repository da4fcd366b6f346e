package sampling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
)

// apart draws a generation of a cache where the graph is divided: owners draw the keys of their own nodes. The threshold is found in two rounds: how many
// keys have which highest bits, and then the keys of those bits among which it is. In a third they tell the nodes below it, of which everybody knows. A node's
// neighbours among them are found where its row lies.
type apart struct {
	nodes int // of the graph
	// ask has all owners tell what Drawers.Column does.
	ask   func(ctx context.Context, column string) ([][]byte, error)
	first pieces.Borders
}

// Names of what owners tell of a generation: its number, the highest bits, the threshold's bits.
const (
	columnCounts = "gns/%d/counts"
	columnNear   = "gns/%d/near/%d"
	columnTaken  = "gns/%d/taken/%x"
)

// draw makes a generation, without the neighbours of nodes.
func (a *apart) draw(ctx context.Context, c *Caches, generation int) (*Cache, error) {
	tau := math.Inf(1)
	if c.size < a.nodes {
		var err error
		if tau, err = a.threshold(ctx, c, generation); err != nil {
			return nil, err
		}
	}
	parts, err := a.ask(ctx, fmt.Sprintf(columnTaken, generation, math.Float64bits(tau)))
	if err != nil {
		return nil, err
	}
	out := &Cache{Generation: generation, member: make([]uint64, (a.nodes+63)/64), rank: make([]uint32, (a.nodes+63)/64)}
	for i, b := range parts {
		for at := 0; at+8 <= len(b); at += 8 {
			u, p := a.first[i]+binary.LittleEndian.Uint32(b[at:]), math.Float32frombits(binary.LittleEndian.Uint32(b[at+4:]))
			if u < a.first[i] || u >= a.first[i+1] || len(out.Nodes) > 0 && u <= out.Nodes[len(out.Nodes)-1] {
				return nil, fmt.Errorf("sampling: piece %d caches node %d, which is not its next", i, u)
			}
			out.member[u/64] |= 1 << (u % 64)
			out.Nodes, out.chance = append(out.Nodes, u), append(out.chance, p)
		}
	}
	for w, n := 0, uint32(0); w < len(out.rank); w++ {
		out.rank[w] = n
		n += uint32(bits.OnesCount64(out.member[w]))
	}
	return out, nil
}

// threshold returns the smallest key that is not taken.
func (a *apart) threshold(ctx context.Context, c *Caches, generation int) (float64, error) {
	parts, err := a.ask(ctx, fmt.Sprintf(columnCounts, generation))
	if err != nil {
		return 0, err
	}
	counts := make([]int, 1<<keyBits(a.nodes))
	for _, b := range parts {
		for at := 0; len(b) > 0; {
			gap, n := binary.Uvarint(b)
			keys, m := binary.Uvarint(b[max(n, 0):])
			if at += int(gap); n <= 0 || m <= 0 || gap > uint64(len(counts)) || at >= len(counts) {
				return 0, errors.New("sampling: counts of keys that are none")
			}
			counts[at] += int(keys)
			b = b[n+m:]
		}
	}
	rank, highest := c.size, 0
	for ; highest < len(counts) && rank >= counts[highest]; highest++ {
		rank -= counts[highest]
	}
	if parts, err = a.ask(ctx, fmt.Sprintf(columnNear, generation, highest)); err != nil {
		return 0, err
	}
	var near []float64
	for _, b := range parts {
		for ; len(b) >= 8; b = b[8:] {
			near = append(near, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
	}
	if rank >= len(near) {
		return 0, fmt.Errorf("sampling: %d keys of a cache's threshold, and there were to be more than %d", len(near), rank)
	}
	return kthSmallest(near, rank), nil
}

// generations are what an owner's rows know of caches.
type generations struct {
	mu     sync.Mutex
	of     int       // whose keys are kept
	keys   []float64 // of the rows' own nodes
	linked map[int]*Cache
}

// told answers for the rows' part of a generation; of is the graph's caches. ok is false when name asks for none.
func (d *drawers) told(c *Caches, name string) (b []byte, ok bool) {
	var generation, highest int
	var tau uint64
	counts := match(name, columnCounts, &generation)
	near := !counts && match(name, columnNear, &generation, &highest)
	if taken := !counts && !near && match(name, columnTaken, &generation, &tau); !counts && !near && !taken {
		return nil, false
	}
	d.caches.mu.Lock()
	defer d.caches.mu.Unlock()
	d.drawKeys(c, generation)
	shift := 64 - keyBits(c.apart.nodes)
	switch {
	case counts:
		of := make([]int, 1<<keyBits(c.apart.nodes))
		for _, k := range d.caches.keys {
			of[math.Float64bits(k)>>shift]++
		}
		last := 0
		for at, n := range of {
			if n > 0 {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at-last)), uint64(n))
				last = at
			}
		}
	case near:
		for _, k := range d.caches.keys {
			if math.Float64bits(k)>>shift == uint64(highest) {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(k))
			}
		}
	default:
		limit := math.Float64frombits(tau)
		for u, k := range d.caches.keys {
			if k < limit {
				b = binary.LittleEndian.AppendUint32(b, uint32(u))
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(c.chance(d.chance(c, uint32(u)), limit))))
			}
		}
	}
	return b, true
}

func match(name, format string, to ...any) bool {
	n, err := fmt.Sscanf(name, format, to...)
	return err == nil && n == len(to)
}

// chance returns the probability to draw own node u first: in proportion to how many edges leave it, unless walks tell.
func (d *drawers) chance(c *Caches, u uint32) float64 {
	if c.p != nil {
		return c.p[d.First+u]
	}
	return float64(d.Out.Degree(u)) / float64(max(d.Edges, 1))
}

// drawKeys draws the keys of the rows' own nodes, as drawing.drawKeys does.
func (d *drawers) drawKeys(c *Caches, generation int) {
	if d.caches.keys != nil && d.caches.of == generation {
		return
	}
	key := rng.New(c.seed, purposeCache, uint64(generation))
	d.caches.keys, d.caches.of = resize(d.caches.keys, d.Graph.NumNodes()), generation
	for u := range d.caches.keys {
		d.caches.keys[u] = math.Inf(1)
		if p := d.chance(c, uint32(u)); p > 0 {
			d.caches.keys[u] = exponential(key.Uint64(uint64(d.First)+uint64(u))) / p
		}
	}
}

// link returns a generation with the neighbours of the rows' own nodes.
func (d *drawers) link(c *Cache) *Cache {
	d.caches.mu.Lock()
	defer d.caches.mu.Unlock()
	if of := d.caches.linked[c.Generation]; of != nil {
		return of
	}
	of := *c
	of.indptr = make([]int64, 1, d.Graph.NumNodes()+1)
	for v := range d.Graph.NumNodes() {
		for e, number := range d.Graph.InNeighbors(uint32(v)) {
			if u := d.id(number); c.Contains(u) {
				of.rows = append(of.rows, CachedNeighbor{uint32(e), 1 / c.chance[c.Slot(u)]})
			}
		}
		of.indptr = append(of.indptr, int64(len(of.rows)))
	}
	of.rows = slices.Clip(of.rows)
	if d.caches.linked == nil {
		d.caches.linked = map[int]*Cache{}
	}
	d.caches.linked[c.Generation] = &of
	for len(d.caches.linked) > keepGenerations {
		delete(d.caches.linked, farthest(d.caches.linked, c.Generation))
	}
	return &of
}
