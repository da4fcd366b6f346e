package pieces

import (
	"context"
	"fmt"
	"math"
	stdruntime "runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/internal/hugepages"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// streaming is the name of the method that places nodes as it reads them.
const streaming = "fennel"

// Methods returns the names of the methods. Those of package partition that look at edges hold
// the graph in memory; "fennel" does not.
func Methods() []string {
	return []string{"contiguous", "hash", streaming, "metis", "louvain", "labels"}
}

// placement says which node is where.
type placement struct {
	borders []uint32 // first id of each piece, and the number of nodes
	piece   []uint16 // of each chunk of Border ids
	id      []uint32 // of each node of the graph, in its order in each piece; nil: ids stay
}

func newPlacement(borders []uint32) *placement {
	return &placement{borders: borders, piece: Borders(borders).Table()}
}

// of returns the piece whose master the id is.
func (p *placement) of(id uint32) int { return int(p.piece[id/Border]) }

func (p *placement) idOf(v uint32) uint32 {
	if p.id == nil {
		return v
	}
	return p.id[v]
}

// idsOf returns the ids of up to len(room) nodes. It has a loop of its own, as a processor waits for
// many of the table's values at once where nothing depends on each.
func (p *placement) idsOf(room, nodes []uint32) []uint32 {
	if p.id == nil {
		return nodes
	}
	room = room[:len(nodes)]
	for i, v := range nodes {
		room[i] = p.id[v]
	}
	return room
}

// even returns borders between pieces of equal numbers of chunks, to within one.
func even(nodes, pieces int) []uint32 {
	chunks := (nodes + Border - 1) / Border
	borders := make([]uint32, pieces+1)
	for i := range borders {
		borders[i] = uint32(min(i*chunks/pieces*Border, nodes))
	}
	return borders
}

// entryBytes returns the bytes of an entry of the rows.
func entryBytes(g *graph.Graph) int64 {
	if g.Weights != nil {
		return 8
	}
	return 4
}

// byBytes returns borders between runs of chunks that hold about as many bytes each: of
// topology, once by target and once by source, and of values.
func byBytes(stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64) []uint32 {
	n := g.NumNodes()
	entry := entryBytes(g)
	cost := make([]int64, (n+Border-1)/Border)
	for from, to := range stop.Pieces(len(g.Indices)) {
		for _, u := range g.Indices[from:to] {
			cost[u/Border] += entry
		}
	}
	total := int64(0)
	for c := range cost {
		from, to := c*Border, min((c+1)*Border, n)
		cost[c] += entry*(g.Indptr[to]-g.Indptr[from]) + int64(to-from)*(16+valueBytes)
		total += cost[c]
	}
	borders, before, c := make([]uint32, pieces+1), int64(0), 0
	for i := 1; i < pieces; i++ {
		want := int64(math.Round(float64(total) * float64(i) / float64(pieces)))
		for c < len(cost) && before+cost[c]/2 < want { // the border that is closer
			before += cost[c]
			c++
		}
		borders[i] = uint32(min(c*Border, n))
	}
	borders[pieces] = uint32(n)
	return borders
}

// place chooses the nodes of every piece.
func place(ctx context.Context, g *graph.Graph, o *Options, valueBytes int64) (*placement, error) {
	stop, n := interrupt.New(ctx), g.NumNodes()
	if o.Method == "contiguous" {
		return newPlacement(byBytes(stop, g, o.Pieces, valueBytes)), stop.Err()
	}
	borders := even(n, o.Pieces)
	var part []uint16
	switch o.Method {
	case "hash":
		part = deal(stop, newPlacement(borders), rng.New(o.Seed))
	case streaming:
		var load *lightest
		var err error
		if part, load, err = stream(stop, g, o.Pieces, valueBytes, o.Progress); err != nil {
			return nil, err
		}
		borders = roundSizes(part, g, load, valueBytes)
	default:
		cluster, err := partition.Compute(ctx, g, o.Method, min(o.Pieces, max(n, 1)), o.Seed)
		if err != nil {
			return nil, err
		}
		part = make([]uint16, n)
		for v, c := range cluster {
			part[v] = uint16(c)
		}
		borders = roundSizes(part, g, loads(stop, part, g, o.Pieces, valueBytes), valueBytes)
	}
	if err := stop.Err(); err != nil {
		return nil, err
	}
	p := newPlacement(borders)
	next := slices.Clone(borders)
	p.id = hugepages.Make[uint32](n)
	for v, i := range part {
		p.id[v] = next[i]
		next[i]++
	}
	return p, nil
}

// deal deals nodes out at random, to each piece as many as its borders say: a node whose piece
// is full goes to the next that is not.
func deal(stop *interrupt.Poll, p *placement, key rng.Key) []uint16 {
	n := int(p.borders[len(p.borders)-1])
	part, room := make([]uint16, n), rooms(p.borders)
	for from, to := range stop.Pieces(n) {
		for v := from; v < to; v++ {
			i := p.of(uint32(key.Uintn(uint64(v), uint64(n))))
			for room[i] == 0 {
				i = (i + 1) % len(room)
			}
			room[i]--
			part[v] = uint16(i)
		}
	}
	return part
}

func rooms(borders []uint32) []int {
	room := make([]int, len(borders)-1)
	for i := range room {
		room[i] = int(borders[i+1] - borders[i])
	}
	return room
}

// streamPasses is how often the streaming method reads the graph. The first pass knows the nodes before
// a node alone, the others what the pass before has made of those behind it.
const streamPasses = 10

// slack is by how much the bytes of a piece may exceed the mean when nodes are streamed, as a share of it.
const slack = 0.095

// price is what the bytes of the mean piece cost in the first pass, in entries of the mean piece: a node's own bytes, in a
// piece of the mean's size, cost price times the entries that so many bytes hold on average. Each pass has cheaper of the
// one before's: pieces of even sizes come first, and then what they gain by being less even.
const (
	price   = 4
	cheaper = 0.7
)

// A node's neighbours are counted by piece, of some nodes at a time: by all processors, and by where they were before the first of those was placed.
const (
	countedNodes   = 256
	countedEntries = 1 << 14
)

// share is how many of a node's neighbours are in a piece.
type share struct {
	piece uint16
	nodes int32
}

// counter counts where neighbours are.
type counter struct {
	near   []int32 // by piece
	shares []share
	ends   []int // of each node's shares
}

// nowhere is the piece of a node that was not placed yet.
const nowhere = math.MaxUint16

func (c *counter) count(g *graph.Graph, part []uint16, from, to int) {
	c.shares, c.ends = c.shares[:0], c.ends[:0]
	for v := from; v < to; v++ {
		first := len(c.shares)
		for _, u := range g.InNeighbors(uint32(v)) {
			if i := part[u]; i != nowhere && int(u) != v {
				if c.near[i]++; c.near[i] == 1 {
					c.shares = append(c.shares, share{piece: i})
				}
			}
		}
		for k := first; k < len(c.shares); k++ {
			s := &c.shares[k]
			s.nodes, c.near[s.piece] = c.near[s.piece], 0
		}
		c.ends = append(c.ends, len(c.shares))
	}
}

// stream is Fennel (Tsourakakis et al., 2014, with gamma 3) with restreaming (Nishimura and Ugander, 2013):
// each node goes to the piece that has the most of the nodes that its edges come from, less the price
// of its bytes there, which grows with the square of the bytes that the piece has. It returns the pieces' bytes, too.
func stream(stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64, progress func(string, int64, int64)) ([]uint16, *lightest, error) {
	n := g.NumNodes()
	part := make([]uint16, n)
	for v := range part {
		part[v] = nowhere
	}
	leaves := make([]uint32, n) // how many edges leave each node
	for from, to := range stop.Pieces(len(g.Indices)) {
		for _, u := range g.Indices[from:to] {
			leaves[u]++
		}
	}
	node, entry := float64(16+valueBytes), float64(entryBytes(g))
	mean := (node*float64(n) + 2*entry*float64(g.NumEdges())) / float64(pieces)
	per := price * float64(g.NumEdges()) / float64(pieces) / mean / mean / mean // in a piece of one byte
	load := newLightest(pieces)
	counters := make([]counter, stdruntime.GOMAXPROCS(0))
	for i := range counters {
		counters[i].near = make([]int32, pieces)
	}
	place := func(v int, shares []share) {
		bytes := node + entry*float64(g.Indptr[v+1]-g.Indptr[v]+int64(leaves[v]))
		if part[v] != nowhere {
			load.add(part[v], -bytes)
		}
		score := func(s share) float64 {
			has := load.of[s.piece]
			return float64(s.nodes) - per*bytes*has*has
		}
		chosen := share{piece: load.lightest()}
		if k := slices.IndexFunc(shares, func(s share) bool { return s.piece == chosen.piece }); k >= 0 {
			chosen = shares[k]
		}
		best := score(chosen)
		for _, s := range shares {
			if x := score(s); load.of[s.piece]+bytes <= mean*(1+slack) && (x > best || x == best && s.piece < chosen.piece) {
				chosen, best = s, x
			}
		}
		load.add(chosen.piece, bytes)
		part[v] = chosen.piece
	}
	for pass := range streamPasses {
		for from, to := 0, 0; from < n && stop.Err() == nil; from = to {
			for to < n && to-from < countedNodes && (to == from || g.Indptr[to+1]-g.Indptr[from] <= countedEntries) {
				to++
			}
			var all errgroup.Group
			at := from
			for i := range counters {
				first, upto := at, g.Indptr[from]+(g.Indptr[to]-g.Indptr[from])*int64(i+1)/int64(len(counters))
				for at < to && (g.Indptr[at] < upto || i == len(counters)-1) {
					at++
				}
				end := at
				all.Go(func() error {
					return graph.Guard(func() error {
						counters[i].count(g, part, first, end)
						return nil
					})
				})
			}
			if err := all.Wait(); err != nil {
				return nil, nil, err
			}
			v := from
			for i := range counters {
				c, first := &counters[i], 0
				for _, end := range c.ends {
					place(v, c.shares[first:end])
					first = end
					v++
				}
			}
			progress("placing nodes", int64(pass*n+to), int64(streamPasses*n))
		}
		per *= cheaper
	}
	return part, load, stop.Err()
}

// lightest are the bytes of pieces, with the least of them at hand: a tree of which each place holds the
// lighter one of the two below it, at an equal weight the first.
type lightest struct {
	of   []float64
	tree []uint16
}

func newLightest(pieces int) *lightest {
	l := &lightest{make([]float64, pieces), make([]uint16, 2*pieces)}
	for i := range pieces {
		l.tree[pieces+i] = uint16(i)
	}
	for at := pieces - 1; at > 0; at-- {
		l.choose(at)
	}
	return l
}

func (l *lightest) choose(at int) {
	a, b := l.tree[2*at], l.tree[2*at+1]
	if l.of[b] < l.of[a] || l.of[b] == l.of[a] && b < a {
		a = b
	}
	l.tree[at] = a
}

func (l *lightest) add(piece uint16, bytes float64) {
	l.of[piece] += bytes
	for at := (len(l.of) + int(piece)) / 2; at > 0; at /= 2 {
		l.choose(at)
	}
}

func (l *lightest) lightest() uint16 { return l.tree[1] }

// loads returns the bytes of pieces.
func loads(stop *interrupt.Poll, part []uint16, g *graph.Graph, pieces int, valueBytes int64) *lightest {
	load, entry := newLightest(pieces), float64(entryBytes(g))
	for from, to := range stop.Pieces(len(part)) {
		for v := from; v < to; v++ {
			load.of[part[v]] += float64(16+valueBytes) + entry*float64(g.Indptr[v+1]-g.Indptr[v])
			for _, u := range g.InNeighbors(uint32(v)) {
				load.of[part[u]] += entry
			}
		}
	}
	for i := range pieces {
		load.add(uint16(i), 0)
	}
	return load
}

// heaviest is the most that a piece may have of the mean's bytes for nodes of others to come to it.
const heaviest = 1.1

// roundSizes moves nodes between pieces until borders are multiples of Border, of a piece that has too many those
// with the fewest edges, of which there the last first, and returns the borders. A piece has less than Border nodes taken, or added as long as
// that does not make it one of the heaviest. load, the pieces' bytes, becomes what they are then, of nodes without edges.
func roundSizes(part []uint16, g *graph.Graph, load *lightest, valueBytes int64) []uint32 {
	n, pieces, node := len(part), len(load.of), float64(16+valueBytes)
	size := make([]int, pieces)
	for _, i := range part {
		size[i]++
	}
	room, order := slices.Clone(size), make([]int, pieces)
	most, left := 0.0, n
	for i := range room {
		most += load.of[i] * heaviest / float64(pieces)
		over := size[i] % Border
		if i == pieces-1 { // the last has what is no multiple
			over = max(size[i]-n%Border, 0)%Border + min(size[i]-n%Border, 0)
		}
		room[i], order[i] = size[i]-over, i
		left -= room[i]
		load.add(uint16(i), -node*float64(over))
	}
	more := func(i int) {
		room[i] += Border
		left -= Border
		load.add(uint16(i), node*Border)
	}
	slices.SortStableFunc(order, func(a, b int) int { return size[b] - room[b] - (size[a] - room[a]) })
	for _, i := range order {
		if left > 0 && load.of[i]+node*Border <= most {
			more(i)
		}
	}
	for left > 0 {
		more(int(load.lightest()))
	}
	fewest := int64(0) // edges of a node that is moved
	for to := 0; !slices.Equal(size, room); fewest = 2*fewest + 1 {
		for v := n - 1; v >= 0; v-- {
			i := part[v]
			if size[i] <= room[i] || g.Indptr[v+1]-g.Indptr[v] > fewest {
				continue
			}
			for size[to] >= room[to] {
				to++
			}
			size[i]--
			size[to]++
			part[v] = uint16(to)
		}
	}
	borders := make([]uint32, pieces+1)
	for i, s := range room {
		borders[i+1] = borders[i] + uint32(s)
	}
	return borders
}

// fits refuses methods that hold the graph in memory where it has more than that.
func (o *Options) fits(g *graph.Graph) error {
	nodes := 8 * int64(g.NumNodes()) // ids, pieces and marks
	need, why := nodes, "a few bytes a node are needed with any method"
	switch o.Method {
	case "metis", "louvain", "labels":
		need, why = nodes+8*g.NumEdges()+32*int64(g.NumNodes()), fmt.Sprintf("method %s holds the graph in memory: --method %s does not", o.Method, streaming)
	case "contiguous":
		need = int64(g.NumNodes()) / 2
	}
	if o.Edges != EdgesAtTarget { // every piece's buckets are of all nodes
		need += 8 * int64(o.Pieces) * int64(g.NumNodes()/Border)
	}
	if need += minimum; need > o.Memory {
		return fmt.Errorf("pieces: %s needs about %d MiB, and may take %.3g (--memory); %s", o.Method, need>>20+1, float64(o.Memory)/(1<<20), why)
	}
	return nil
}
