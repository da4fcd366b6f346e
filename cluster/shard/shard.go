// Package shard keeps the feature rows of a graph on the nodes of a cluster.
//
// A Map deals the graph's nodes to shards; every node of the cluster has the
// whole topology and the map, and the rows of the shards that it holds. A shard
// may be held several times. Store reads rows wherever they are, as a
// features.Store: so slab, match, reorder and caches work on remote rows as on
// any others, and what they find needs no exchange. The rows of one Read that
// lie elsewhere come in one round: one request to each node that is asked, all
// at once. Only when a node goes, or a shard has moved, is there another round.
//
// The pieces of a partition set are shards, too (MapOf): of those a node holds more than the
// rows, and whoever keeps them says how they come there (Options.Bring).
package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
)

// Map says which shard each node of the graph is in, and which row of it.
type Map struct {
	part, row []uint32
	sizes     []int

	borders pieces.Borders // of a partition set, whose pieces are the shards; part and row are nil
	table   []uint16       // borders.Table()

	invert func() error // fills nodes and first, once
	nodes  []uint32     // by shard and row
	first  []int        // of each shard in nodes
}

// NewMap makes the map of a partition (graph/partition computes them): node v
// is in shard part[v] < shards. It keeps part.
func NewMap(part []uint32, shards int) (*Map, error) {
	m := &Map{part: part, row: make([]uint32, len(part)), sizes: make([]int, shards)}
	for v, s := range part {
		if int(s) >= shards {
			return nil, fmt.Errorf("shard: node %d is in shard %d of %d", v, s, shards)
		}
		m.row[v] = uint32(m.sizes[s])
		m.sizes[s]++
	}
	m.invert = sync.OnceValue(func() error { return graph.Guard(m.fill) }) // part may lie in a file
	return m, nil
}

// MapOf makes the map of a partition set: a shard is a piece.
func MapOf(borders pieces.Borders) *Map {
	m := &Map{borders: borders, table: borders.Table(), sizes: make([]int, len(borders)-1)}
	for i := range m.sizes {
		m.sizes[i] = int(borders[i+1] - borders[i])
	}
	return m
}

// nodeCount returns how many nodes the graph has.
func (m *Map) nodeCount() int {
	if m.borders != nil {
		return m.borders.Nodes()
	}
	return len(m.part)
}

// at returns which shard node v is in, and its row there.
func (m *Map) at(v uint32) (shard, row int) {
	if m.borders != nil {
		shard = int(m.table[v/pieces.Border])
		return shard, int(v - m.borders[shard])
	}
	return int(m.part[v]), int(m.row[v])
}

// Shards returns the number of shards.
func (m *Map) Shards() int { return len(m.sizes) }

// Rows returns the number of rows of a shard.
func (m *Map) Rows(shard int) int { return m.sizes[shard] }

// Cut copies the rows of a shard out of the whole table.
func (m *Map) Cut(ctx context.Context, all features.Store, shard int) (*graph.Features, error) {
	if shard < 0 || shard >= len(m.sizes) {
		return nil, fmt.Errorf("shard: there is no shard %d of %d", shard, len(m.sizes))
	}
	return m.cut(ctx, all, shard, 0, m.sizes[shard])
}

// cut copies n rows of a shard.
func (m *Map) cut(ctx context.Context, all features.Store, shard, first, n int) (*graph.Features, error) {
	if err := m.invert(); err != nil {
		return nil, err
	}
	from := m.first[shard] + first
	return features.Table(ctx, all, m.nodes[from:from+n])
}

func (m *Map) fill() error {
	m.first = make([]int, len(m.sizes))
	at := 0
	for s, n := range m.sizes {
		m.first[s] = at
		at += n
	}
	m.nodes = make([]uint32, len(m.part))
	for v, s := range m.part {
		m.nodes[m.first[s]+int(m.row[v])] = uint32(v)
	}
	return nil
}

// errMoved is what a node answers that does not hold a shard.
var errMoved = errors.New("shard: not held here")

// Server holds shards and serves their rows.
type Server struct {
	m      *Map
	layout features.Layout

	mu      sync.RWMutex
	held    map[int]*graph.Features
	all     features.Store // of which others may copy any shard; nil: this node has no more than its shards
	buffers sync.Pool      // *[]byte
}

// NewServer serves rows of a layout at p. all, which stays the caller's, is what others may copy any shard from; nil: nothing.
func NewServer(p *dataplane.Plane, m *Map, layout features.Layout, all features.Store) *Server {
	s := &Server{m: m, layout: layout, held: map[int]*graph.Features{}, all: all}
	p.Handle(dataplane.MethodRows, s.rows)
	dataplane.ServeRanges(p, dataplane.MethodShard, chunkOf(layout), s.find)
	return s
}

// Hold makes this node serve a shard; rows stays the server's until Drop.
func (s *Server) Hold(shard int, rows *graph.Features) error {
	if shard < 0 || shard >= s.m.Shards() || rows.Rows != s.m.Rows(shard) || rows.Cols != s.layout.Cols || rows.DType != s.layout.DType || (rows.RowScale != nil) != s.layout.RowScaled {
		return fmt.Errorf("shard: %d rows of %d %s do not make shard %d", rows.Rows, rows.Cols, rows.DType, shard)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[shard] = rows
	return nil
}

// Drop ends the serving of a shard: who asks for it is told that it has moved.
func (s *Server) Drop(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, shard)
}

// List returns the shards held, in order.
func (s *Server) List() []int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.held))
}

func (s *Server) shard(i int) *graph.Features {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.held[i]
}

// put copies row i of f, and its scale, to b.
func put(b []byte, f *graph.Features, i int) {
	n := f.Cols * f.DType.Size()
	copy(b, f.Data[i*f.Stride:i*f.Stride+n])
	if f.RowScale != nil {
		putScale(b[n:], f.RowScale[i])
	}
}

func (s *Server) rows(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	if len(r.Body)%4 != 0 {
		return dataplane.Reply{}, fmt.Errorf("shard: %d bytes of ids", len(r.Body))
	}
	row := s.layout.RowBytes()
	n := len(r.Body) / 4
	if n*row > maxReply {
		return dataplane.Reply{}, fmt.Errorf("shard: %d rows of %d bytes; at most %d bytes at once", n, row, maxReply)
	}
	buf := s.buffer(n * row)
	err := graph.Guard(func() error {
		for i := range n {
			if i%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			v := binary.LittleEndian.Uint32(r.Body[4*i:])
			if int(v) >= s.m.nodeCount() {
				return fmt.Errorf("shard: node %d is out of range [0, %d)", v, s.m.nodeCount())
			}
			of, at := s.m.at(v)
			f := s.shard(of)
			if f == nil {
				return errMoved
			}
			put((*buf)[i*row:], f, at)
		}
		return nil
	})
	if err != nil {
		s.buffers.Put(buf)
		return dataplane.Reply{}, err
	}
	return dataplane.Reply{Data: [][]byte{*buf}, Release: func() { s.buffers.Put(buf) }}, nil
}

func (s *Server) buffer(n int) *[]byte {
	b, ok := s.buffers.Get().(*[]byte)
	if !ok || cap(*b) < n {
		fresh := make([]byte, n)
		return &fresh
	}
	*b = (*b)[:n]
	return b
}

// Limits of one exchange, in bytes.
const (
	maxReply   = 256 << 20
	maxRequest = 4 << 20
)

// chunkOf returns how many bytes of a shard travel at once: whole rows.
func chunkOf(l features.Layout) int {
	row := max(1, l.RowBytes())
	return max(1, dataplane.ChunkBytes/row) * row
}

// find finds rows of a shard, for a node that takes it over.
func (s *Server) find(ctx context.Context, name []byte, at int64, bytes int) (func([]byte) error, error) {
	if len(name) != 4 || int64(binary.LittleEndian.Uint32(name)) >= int64(s.m.Shards()) {
		return nil, fmt.Errorf("shard: there is no shard %x of %d", name[:min(len(name), 8)], s.m.Shards())
	}
	id, row := int(binary.LittleEndian.Uint32(name)), s.layout.RowBytes()
	size := s.m.Rows(id)
	if row == 0 || at < 0 || at%int64(row) != 0 || bytes%row != 0 || at+int64(bytes) > int64(size)*int64(row) {
		return nil, fmt.Errorf("shard: %d bytes at %d of %d rows of %d", bytes, at, size, row)
	}
	first, n := int(at/int64(row)), bytes/row
	f := s.shard(id)
	if f == nil {
		if s.all == nil {
			return nil, errMoved
		}
		var err error
		if f, err = s.m.cut(ctx, s.all, id, first, n); err != nil {
			return nil, err
		}
		first = 0
	}
	return func(b []byte) error {
		return graph.Guard(func() error {
			for i := range n {
				put(b[i*row:], f, first+i)
			}
			return nil
		})
	}, nil
}

// Copy fetches a whole shard from one of the nodes that hold it; when one goes,
// it goes on with the next from where it was.
func Copy(ctx context.Context, p *dataplane.Plane, m *Map, layout features.Layout, shard int, holders []string) (*graph.Features, error) {
	t := layout.NewTable(m.Rows(shard))
	row := layout.RowBytes()
	from := dataplane.Source{Plane: p, Method: dataplane.MethodShard, Nodes: holders}
	err := from.All(ctx, binary.LittleEndian.AppendUint32(nil, uint32(shard)), int64(t.Rows)*int64(row), chunkOf(layout), func(at int64, b []byte) error {
		for first := int(at / int64(row)); len(b) > 0; first, b = first+1, b[row:] {
			take(t, first, b[:row])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("shard: shard %d cannot be fetched from %v: %w", shard, holders, err)
	}
	return t, nil
}
