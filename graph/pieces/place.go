package pieces

import (
	"context"
	"fmt"
	"math"
	"slices"

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
