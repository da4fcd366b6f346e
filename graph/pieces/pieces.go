// Package pieces divides a graph into pieces, a store each, for machines that cannot hold it
// whole, and opens what it made: a directory that is called a partition set.
//
// A piece has a range of the nodes, its masters, whose features, labels and times it holds. The
// borders between pieces are multiples of Border, so that sums over chunks of so many rows never
// cross one. How nodes are placed is the method's choice; all but "contiguous" give the nodes
// other ids, ordered by piece and then by the id that they had, which store.Piece.Originals keeps.
//
// Where an edge lies is a second choice. EdgesAtTarget: with the piece of its target, which has
// all edges of its masters and sums in the order of the whole graph; beside them the piece has
// the edges that leave its masters, as backward passes need them. EdgesAtSource: with the piece
// of its source. EdgesOnGrid: pieces are the cells of a grid of r rows and c columns, and an edge
// from piece a to piece b lies in the row of a and the column of b, so that a piece exchanges
// values with r+c-2 others at most (the vertex-cut of 2D partitioning).
//
// Create reads the graph from its first edge to its last, and sorts in files: what it allocates
// is a few bytes a node, none an edge.
package pieces

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/internal/regular"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Border is what the first id of every piece is a multiple of.
const Border = 1024

// Manifest is the name of the file that makes a directory a partition set.
const Manifest = arrays.SetManifest

// Where edges lie.
const (
	EdgesAtTarget = "target"
	EdgesAtSource = "source"
	EdgesOnGrid   = "grid"
)

// EdgePlaces returns where edges may lie.
func EdgePlaces() []string { return []string{EdgesAtTarget, EdgesAtSource, EdgesOnGrid} }

// Set is a partition set.
type Set struct {
	dir string
	m   manifest
}

// manifest is the content of pieces.json, which is exactly its encoding.
type manifest struct {
	Format  string      `json:"format"`
	Version int         `json:"version"`
	Name    string      `json:"name"`
	Method  string      `json:"method"`
	Edges   string      `json:"edges"`
	Seed    uint64      `json:"seed"`
	Graph   string      `json:"graph_fingerprint"` // of the whole
	Nodes   int64       `json:"nodes"`
	Splits  [3]IDs      `json:"splits"` // training, validation and test, in the graph's order
	Pieces  []PieceInfo `json:"pieces"`
	Cut     int64       `json:"edges_cut"` // whose ends are masters of two pieces
	Sum     string      `json:"sha256"`    // of this document with an empty sum
}

// IDs says what a file of ids holds.
type IDs = store.IDs

// PieceInfo is what a set's manifest says of a piece.
type PieceInfo struct {
	First       int64  `json:"first"` // id of the first master
	Masters     int64  `json:"masters"`
	Edges       int64  `json:"edges"`
	OutEdges    int64  `json:"out_edges"`
	Sources     int64  `json:"sources"` // nodes of other pieces that its edges come from
	Targets     int64  `json:"targets"` // nodes of other pieces that its edges lead to
	Train       int64  `json:"train"`   // training nodes among the masters
	Bytes       int64  `json:"bytes"`   // of all values
	Fingerprint string `json:"fingerprint"`
}

const (
	format      = "gnnactor-pieces"
	version     = 1
	maxManifest = 1 << 22
)

// MaxPieces is how many pieces a graph may be divided into.
const MaxPieces = 4096

func (m *manifest) encode() []byte {
	m.Format, m.Version, m.Sum = format, version, ""
	marshal := func() []byte {
		b, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			panic(err) // strings and integers always encode
		}
		return append(b, '\n')
	}
	sum := sha256.Sum256(marshal())
	m.Sum = hex.EncodeToString(sum[:])
	return marshal()
}

func decode(b []byte) (m manifest, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("it is not a partition set's manifest (%w)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("there is something after the manifest")
	}
	if m.Format != format || m.Version != version {
		return m, fmt.Errorf("format %q, version %d; this program reads %q, version %d", m.Format, m.Version, format, version)
	}
	again := m
	if !bytes.Equal(again.encode(), b) {
		return m, errors.New("it is damaged: its checksum does not match its content")
	}
	if m.Nodes < 0 || m.Nodes > graph.MaxNodes || len(m.Pieces) == 0 || len(m.Pieces) > MaxPieces {
		return m, fmt.Errorf("%d nodes in %d pieces is out of range", m.Nodes, len(m.Pieces))
	}
	at := int64(0)
	for i, p := range m.Pieces {
		if p.First != at || p.Masters < 0 || p.Masters > m.Nodes-at || p.Masters > 0 && at%Border != 0 {
			return m, fmt.Errorf("piece %d has the nodes from %d to %d of %d", i, p.First, p.First+p.Masters, m.Nodes)
		}
		at += p.Masters
	}
	if at != m.Nodes {
		return m, fmt.Errorf("the pieces have %d of %d nodes", at, m.Nodes)
	}
	return m, nil
}

// IsSet reports whether dir is a partition set.
func IsSet(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, Manifest))
	return err == nil
}

// Open reads the manifest of the partition set in dir, and opens no piece. Errors about the
// content wrap graph.ErrFormat.
func Open(dir string) (*Set, error) {
	path := filepath.Join(dir, Manifest)
	b, err := regular.ReadSmall(path, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("graph: open partition set: %w; make one with 'gnnactor partition STORE --parts N --out %s'", err, dir)
	}
	m, err := decode(b)
	if err != nil {
		return nil, dataerr.Bad("%s: %w; divide the graph again", path, err)
	}
	return &Set{dir, m}, nil
}

// Name returns what the graph is called.
func (s *Set) Name() string { return s.m.Name }

// Method returns how nodes were placed, with which seed, and where edges lie.
func (s *Set) Method() (method string, seed uint64, edges string) {
	return s.m.Method, s.m.Seed, s.m.Edges
}

// NumNodes returns how many nodes the graph has.
func (s *Set) NumNodes() int { return int(s.m.Nodes) }

// Pieces returns what is known of the pieces without opening them. It must not be changed.
func (s *Set) Pieces() []PieceInfo { return s.m.Pieces }

// Fingerprint identifies the set: the graph, how it is divided, and every byte of its pieces.
func (s *Set) Fingerprint() string { return s.m.Sum }

// GraphFingerprint is the fingerprint of the graph that was divided.
func (s *Set) GraphFingerprint() string { return s.m.Graph }

// PieceDir returns where piece i lies, or would.
func (s *Set) PieceDir(i int) string { return filepath.Join(s.dir, pieceName(i)) }

func pieceName(i int) string { return fmt.Sprintf("piece-%04d", i) }

// Splits are the names of the three splits, in the order of OpenSplit.
var splits = [3]string{"train", "valid", "test"}

// Split returns the ids of the training nodes (0), of those for validation (1) or for tests (2),
// in the order of the graph that was divided.
func (s *Set) Split(i int) ([]uint32, error) {
	ids, err := store.ReadIDs(filepath.Join(s.dir, splits[i]), s.m.Splits[i])
	if err != nil {
		return nil, fmt.Errorf("%w; divide the graph again", err)
	}
	for _, v := range ids {
		if int64(v) >= s.m.Nodes {
			return nil, dataerr.Bad("%s: node %d is out of range [0, %d); divide the graph again", filepath.Join(s.dir, splits[i]), v, s.m.Nodes)
		}
	}
	return ids, nil
}

// OpenPiece opens piece i, and compares its fingerprint with what the set says. Its Close ends
// the mapping.
func (s *Set) OpenPiece(i int) (*store.Piece, error) {
	p, err := store.OpenPiece(s.PieceDir(i))
	if err != nil {
		return nil, err
	}
	if got, want := p.Dataset().Fingerprint, s.m.Pieces[i].Fingerprint; got != want {
		return nil, errors.Join(dataerr.Bad("%s: it has the fingerprint %.16s, but %s names %.16s: it is of another set; divide the graph again",
			s.PieceDir(i), got, Manifest, want), p.Close())
	}
	return p, nil
}

// Verify reads every byte of the set and compares it with the checksums taken when it was
// written, and checks that what the pieces hold can be used.
func (s *Set) Verify(ctx context.Context) error {
	for i := range splits {
		if _, err := s.Split(i); err != nil {
			return err
		}
	}
	for i := range s.m.Pieces {
		p, err := s.OpenPiece(i)
		if err != nil {
			return err
		}
		if err := errors.Join(p.Verify(ctx), p.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Balance says how evenly a set's pieces are loaded, as the largest by the mean, and how much
// lies twice.
type Balance struct {
	Nodes, Edges, Bytes, Train float64 // the largest piece's share by the mean; 1 is even
	CutShare                   float64 // of the edges
	Replication                float64 // masters and sources of all pieces by the nodes: 1 is none twice
}

// Balance returns how evenly the pieces are loaded.
func (s *Set) Balance() Balance {
	worst := func(of func(p *PieceInfo) int64) float64 {
		most, sum := int64(0), int64(0)
		for i := range s.m.Pieces {
			x := of(&s.m.Pieces[i])
			most, sum = max(most, x), sum+x
		}
		return ratio(most*int64(len(s.m.Pieces)), sum)
	}
	edges, copies := int64(0), s.m.Nodes
	for _, p := range s.m.Pieces {
		edges, copies = edges+p.Edges, copies+p.Sources
	}
	return Balance{
		Nodes: worst(func(p *PieceInfo) int64 { return p.Masters }), Edges: worst(func(p *PieceInfo) int64 { return p.Edges }),
		Bytes: worst(func(p *PieceInfo) int64 { return p.Bytes }), Train: worst(func(p *PieceInfo) int64 { return p.Train }),
		CutShare: ratio(s.m.Cut, edges), Replication: ratio(copies, s.m.Nodes),
	}
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}

// Borders are the first id of each piece and, last, the number of nodes.
type Borders []uint32

// Borders returns where the pieces begin.
func (s *Set) Borders() Borders {
	b := make(Borders, 0, len(s.m.Pieces)+1)
	for _, p := range s.m.Pieces {
		b = append(b, uint32(p.First))
	}
	return append(b, uint32(s.m.Nodes))
}

// Nodes returns how many nodes there are.
func (b Borders) Nodes() int { return int(b[len(b)-1]) }

// Table returns the piece of every Border ids: id v is a master of Table()[v/Border].
func (b Borders) Table() []uint16 {
	table := make([]uint16, (b.Nodes()+Border-1)/Border)
	for i := range len(b) - 1 {
		for v := int(b[i]); v < int(b[i+1]); v += Border {
			table[v/Border] = uint16(i)
		}
	}
	return table
}
