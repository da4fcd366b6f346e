package pieces

import (
	"math"
	stdruntime "runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/hugepages"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// streamPasses is how often the streaming method reads the graph at most: a pass that moves less than a node in settled is the
// last one. The first knows the nodes before a node alone, the others what the pass before has made of those behind it.
const (
	streamPasses = 12
	settled      = 1000
)

// slack is by how much the bytes of a piece may exceed the mean when nodes are streamed, as a share of it.
const slack = 0.0995

// mirrorBytes is what a piece's node takes of another piece that has neighbours of it: its id there, beside those that point to it and those
// that it points to, which are taken for the same.
const mirrorBytes = 8

// price is what the bytes of the mean piece cost in the first pass, in entries of the mean piece: a node's own bytes, in a
// piece of the mean's size, cost price times the entries that so many bytes hold on average. Each pass has cheaper of the
// one before's: pieces of even sizes come first, and then what they gain by being less even.
const (
	price   = 4
	cheaper = 0.7
)

// A piece that has more than nearly of what it may have costs up to dearer times the entries that as many bytes hold on average besides: nodes with few
// neighbours there make room for those with many, where at the limit alone nobody could come and few would go.
const (
	nearly = 0.98
	dearer = 0.2
)

// The nodes are counted and placed in blocks, about streamBlocks a pass: one is counted by many tasks while the block before it is placed.
// Neighbours of those two are counted when their node is placed, so that each is counted where it is then.
const (
	streamBlocks = 64
	blockNodes   = 64 // and entries that a block has at least
	blockEntries = 1 << 12
	blockTasks   = 16
)

// share is how many of a node's neighbours are in a piece.
type share struct {
	piece uint16
	nodes int32
}

// counts say where the neighbours of a range of nodes are, and which are to be counted still.
type counts struct {
	shares []share
	later  []uint32
	ends   [][2]int // of each node's shares, and of later
}

// block is a range of nodes.
type block struct{ from, nodes uint32 }

// stream is Fennel (Tsourakakis et al., 2014, with gamma 3) with restreaming (Nishimura and Ugander, 2013):
// each node goes to the piece that has the most of the nodes that its edges come from, less the price
// of its bytes there, which grows with the square of the bytes that the piece has. It returns the pieces' bytes, too.
func stream(stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64, progress func(string, int64, int64)) ([]uint16, *lightest, error) {
	if pieces >= math.MaxUint8 {
		return newStreamer[uint16](stop, g, pieces, valueBytes).stream(stop, progress)
	}
	part, load, err := newStreamer[uint8](stop, g, pieces, valueBytes).stream(stop, progress) // more of which lies in a processor's cache
	wide := make([]uint16, len(part))
	for v, i := range part {
		wide[v] = uint16(i)
	}
	return wide, load, err
}

type streamer[P uint8 | uint16] struct {
	g             *graph.Graph
	pieces        int      // which is also the piece of nodes that were not placed yet
	part, placed  []P      // of each node: part is not written while a block is placed; later is of those of the block and the next
	leaves        []uint32 // how many edges leave each node
	node, entry   float64  // bytes
	mean, perByte float64  // of a piece; the price in a piece of one byte
	load          *lightest
	moved         int       // nodes of this pass
	mirrors       []float64 // bytes of other pieces' nodes in each piece, by this pass, and by the last one, which load has
	had           []float64
}

func newStreamer[P uint8 | uint16](stop *interrupt.Poll, g *graph.Graph, pieces int, valueBytes int64) *streamer[P] {
	n := g.NumNodes()
	s := &streamer[P]{
		g: g, pieces: pieces, part: hugepages.Make[P](n), placed: hugepages.Make[P](n), leaves: hugepages.Make[uint32](n),
		node: float64(20 + valueBytes), entry: float64(entryBytes(g)), load: newLightest(pieces),
		mirrors: make([]float64, pieces), had: make([]float64, pieces),
	}
	for v := range s.part {
		s.part[v], s.placed[v] = P(pieces), P(pieces)
	}
	for from, to := range stop.Pieces(len(g.Indices)) {
		for _, u := range g.Indices[from:to] {
			s.leaves[u]++
		}
	}
	s.mean = (s.node*float64(n) + 2*s.entry*float64(g.NumEdges())) / float64(pieces)
	s.perByte = price * float64(g.NumEdges()) / float64(pieces) / s.mean / s.mean / s.mean
	return s
}

// later is the piece of nodes whose neighbours are counted or that are placed meanwhile: who has them as neighbours counts them when it is placed.
func (s *streamer[P]) later() P { return P(s.pieces + 1) }

// count counts the neighbours of the nodes [from, to) by pieces, but for those that are to be counted later. near has a zero for each piece and two more.
func (s *streamer[P]) count(c *counts, near, near2 []int32, from, to int) {
	c.shares, c.later, c.ends = c.shares[:0], c.later[:0], c.ends[:0]
	part, later := s.part, s.later()
	for v := from; v < to; v++ {
		row := s.g.InNeighbors(uint32(v))
		all := row
		if len(near) <= 2*len(row) {
			for ; len(row) > 1; row = row[2:] { // a count that was just written is waited for: two take turns
				a, b := part[row[0]], part[row[1]]
				near[a]++
				near2[b]++
				if a == later && int(row[0]) != v {
					c.later = append(c.later, row[0])
				}
				if b == later && int(row[1]) != v {
					c.later = append(c.later, row[1])
				}
			}
		}
		for _, u := range row {
			i := part[u]
			near[i]++
			if i == later && int(u) != v {
				c.later = append(c.later, u)
			}
		}
		if len(near) <= 2*len(all) {
			for i, n := range near[:s.pieces] {
				if n += near2[i]; n > 0 {
					c.shares = append(c.shares, share{uint16(i), n})
				}
			}
			clear(near)
			clear(near2)
		} else {
			for _, u := range all {
				i := part[u]
				if n := near[i]; n > 0 && int(i) < s.pieces {
					c.shares = append(c.shares, share{uint16(i), n})
				}
				near[i] = 0
			}
		}
		c.ends = append(c.ends, [2]int{len(c.shares), len(c.later)})
	}
}

// place places a node whose neighbours were counted.
func (s *streamer[P]) place(v int, shares []share) {
	bytes := s.node + s.entry*float64(s.g.Indptr[v+1]-s.g.Indptr[v]+int64(s.leaves[v]))
	was := s.placed[v]
	if int(was) < s.pieces {
		s.load.add(uint16(was), -bytes)
	}
	score := func(i share) float64 {
		has := s.load.of[i.piece]
		cost := s.perByte * has * has
		if over := has/s.mean/(1+slack) - nearly; over > 0 {
			cost += over / (1 - nearly) * dearer * float64(s.g.NumEdges()) / float64(s.pieces) / s.mean
		}
		return float64(i.nodes) - bytes*cost
	}
	chosen := share{piece: s.load.lightest()}
	if k := slices.IndexFunc(shares, func(i share) bool { return i.piece == chosen.piece }); k >= 0 {
		chosen = shares[k]
	}
	best := score(chosen)
	for _, i := range shares {
		if x := score(i); s.load.of[i.piece]+bytes <= s.mean*(1+slack) && (x > best || x == best && i.piece < chosen.piece) {
			chosen, best = i, x
		}
	}
	s.load.add(chosen.piece, bytes)
	for _, i := range shares {
		if i.piece != chosen.piece {
			s.mirrors[i.piece] += mirrorBytes
		}
	}
	s.placed[v] = P(chosen.piece)
	if s.placed[v] != was {
		s.moved++
	}
}

// blocks returns blocks of about as many nodes, or entries, each.
func blocks(g *graph.Graph) (list []block) {
	n, from := g.NumNodes(), 0
	nodes, entries := max(n/streamBlocks, blockNodes), max(g.NumEdges()/streamBlocks, blockEntries)
	for v := 1; v <= n; v++ {
		if v == n || v-from == nodes || g.Indptr[v+1]-g.Indptr[from] > entries {
			list = append(list, block{uint32(from), uint32(v - from)})
			from = v
		}
	}
	return list
}

func (s *streamer[P]) stream(stop *interrupt.Poll, progress func(string, int64, int64)) ([]P, *lightest, error) {
	blocks, n := blocks(s.g), len(s.part)
	each := len(blocks)
	var counted [2][blockTasks]counts // of a block, and of the one before
	for step := 0; n > 0 && stop.Err() == nil; step++ {
		now, before := blocks[step%each], blocks[(step+each-1)%each]
		var tasks atomic.Int64
		var all errgroup.Group
		for v := now.from; v < now.from+now.nodes; v++ {
			s.part[v] = s.later()
		}
		for range stdruntime.GOMAXPROCS(0) {
			all.Go(func() error {
				return graph.Guard(func() error {
					near, near2 := make([]int32, s.pieces+2), make([]int32, s.pieces+2)
					for task := tasks.Add(1) - 2; task < blockTasks; task = tasks.Add(1) - 2 {
						if task >= 0 {
							first, end := s.task(now, task)
							s.count(&counted[step%2][task], near, near2, first, end)
						} else if step > 0 {
							s.placeBlock(int(before.from), &counted[(step+1)%2], near)
						}
					}
					return nil
				})
			})
		}
		if err := all.Wait(); err != nil {
			return nil, nil, err
		}
		if step == 0 {
			continue
		}
		pass, end := (step-1)/each, int(before.from+before.nodes)
		copy(s.part[before.from:end], s.placed[before.from:])
		progress("placing nodes", int64(pass*n+end), int64(streamPasses*n))
		if end == n {
			if pass == streamPasses-1 || s.moved <= n/settled {
				break
			}
			s.endPass()
		}
	}
	return s.placed, s.load, stop.Err()
}

func (s *streamer[P]) endPass() {
	s.perByte, s.moved = s.perByte*cheaper, 0
	for i, bytes := range s.mirrors {
		s.load.add(uint16(i), bytes-s.had[i])
		s.mean += (bytes - s.had[i]) / float64(s.pieces)
	}
	s.mirrors, s.had = s.had, s.mirrors
	clear(s.mirrors)
}

// task returns a task's nodes of those of a block: each task has about as many entries.
func (s *streamer[P]) task(b block, task int64) (first, end int) {
	from, to := int(b.from), int(b.from+b.nodes)
	bounds := s.g.Indptr[from : to+1]
	cut := func(task int64) int {
		at, _ := slices.BinarySearch(bounds[:to-from], bounds[0]+(bounds[to-from]-bounds[0])*task/blockTasks)
		return from + at
	}
	if end = to; task < blockTasks-1 {
		end = cut(task + 1)
	}
	return cut(task), end
}

// placeBlock places the nodes of a block, of which v is the first. near is like count's.
func (s *streamer[P]) placeBlock(v int, counted *[blockTasks]counts, near []int32) {
	var both []share
	for t := range counted {
		c, from := &counted[t], [2]int{}
		for _, end := range c.ends {
			shares, later := c.shares[from[0]:end[0]], c.later[from[1]:end[1]]
			if len(later) > 0 {
				both = append(both[:0], shares...)
				for _, i := range shares {
					near[i.piece] = i.nodes
				}
				for _, u := range later {
					i := s.placed[u]
					if near[i]++; near[i] == 1 && int(i) < s.pieces {
						both = append(both, share{piece: uint16(i)})
					}
				}
				near[s.pieces] = 0
				for k := range both {
					i := &both[k]
					i.nodes, near[i.piece] = near[i.piece], 0
				}
				shares = both
			}
			s.place(v, shares)
			from, v = end, v+1
		}
	}
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
