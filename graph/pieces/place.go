package pieces

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// streaming is the name of the method that places nodes as it reads them.
const streaming = "ldg"

// Methods returns the names of the methods. Those of package partition that look at edges hold
// the graph in memory; "ldg" does not.
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

// byBytes returns borders between runs of chunks that hold about as many bytes each: of
// topology, once by target and once by source, and of values.
func byBytes(stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64) []uint32 {
	n := g.NumNodes()
	entry := int64(4)
	if g.Weights != nil {
		entry += 4
	}
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
		part = ldg(stop, g, o.Pieces, valueBytes, o.Progress)
		borders = roundSizes(part, o.Pieces)
	default:
		cluster, err := partition.Compute(ctx, g, o.Method, min(o.Pieces, max(n, 1)), o.Seed)
		if err != nil {
			return nil, err
		}
		part = make([]uint16, n)
		for v, c := range cluster {
			part[v] = uint16(c)
		}
		borders = roundSizes(part, o.Pieces)
	}
	if err := stop.Err(); err != nil {
		return nil, err
	}
	p := newPlacement(borders)
	next := slices.Clone(borders)
	p.id = make([]uint32, n)
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

// ldgPasses is how often ldg reads the graph. The first pass knows the nodes before a node
// alone, the others what the pass before has made of those behind it.
const ldgPasses = 3

// slack is by how much the bytes of a piece of "ldg" may exceed the mean, as a share of it.
const slack = 0.05

// ldg is linear deterministic greedy placement of a stream of nodes (Stanton and Kliot, 2012)
// with restreaming (Nishimura and Ugander, 2013): each node goes to the piece that has the most
// of the nodes that its edges come from, times the share of the piece's bytes that is free.
func ldg(stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64, progress func(string, int64, int64)) []uint16 {
	n := g.NumNodes()
	const nowhere = math.MaxUint16
	part := make([]uint16, n)
	for v := range part {
		part[v] = nowhere
	}
	cost := func(v int) float64 { return float64(16 + valueBytes + 8*(g.Indptr[v+1]-g.Indptr[v])) }
	size := (float64(16+valueBytes)*float64(n) + 8*float64(g.NumEdges())) / float64(pieces) * (1 + slack)
	free := make([]float64, pieces) // bytes of each piece
	near := make([]int32, pieces)   // of the node's neighbours in each piece
	var touched []uint16
	for pass := range ldgPasses {
		for i := range free {
			free[i] = size
		}
		for from, to := range stop.Pieces(n) {
			for v := from; v < to; v++ {
				touched = touched[:0]
				for _, u := range g.InNeighbors(uint32(v)) {
					if i := part[u]; i != nowhere && int(u) != v {
						if near[i] == 0 {
							touched = append(touched, i)
						}
						near[i]++
					}
				}
				best, score, bytes := -1, 0.0, cost(v)
				for _, i := range touched {
					s := float64(near[i]) * free[i]
					near[i] = 0
					if free[i] >= bytes && (s > score || s == score && int(i) < best) {
						best, score = int(i), s
					}
				}
				if best < 0 {
					best = slices.Index(free, slices.Max(free))
				}
				free[best] -= bytes
				part[v] = uint16(best)
			}
			progress("placing nodes", int64(pass*n+to), int64(ldgPasses*n))
		}
	}
	return part
}

// roundSizes moves nodes between pieces until borders are multiples of Border, the last of a
// piece that has too many first, and returns the borders.
func roundSizes(part []uint16, pieces int) []uint32 {
	size := make([]int, pieces)
	for _, i := range part {
		size[i]++
	}
	borders, sum := make([]uint32, pieces+1), 0
	for i, s := range size {
		sum += s
		borders[i+1] = uint32(min((sum+Border/2)/Border*Border, len(part)))
	}
	borders[pieces] = uint32(len(part))
	room := rooms(borders)
	to := 0
	for v := len(part) - 1; v >= 0; v-- {
		i := part[v]
		if size[i] <= room[i] {
			continue
		}
		for size[to] >= room[to] {
			to++
		}
		size[i]--
		size[to]++
		part[v] = uint16(to)
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
		return fmt.Errorf("pieces: %s needs about %d MiB, and may take %d (--memory); %s", o.Method, need>>20+1, o.Memory>>20, why)
	}
	return nil
}
