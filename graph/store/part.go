package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// Part is a part of a store that a process may do without; what is left is known without it:
// labels, splits, times of nodes, partitions, sizes, and the fingerprint of all.
type Part uint8

// The parts.
const (
	Topology   Part = 1 << iota // which edges there are, and their times
	EdgeValues                  // weights and features of edges
	NodeValues                  // features of nodes
	Whole      = Topology | EdgeValues | NodeValues
)

// partOf says which arrays are in which part; the others are in all.
var partOf = map[string]Part{
	arrays.Indptr: Topology, arrays.Indices: Topology, arrays.EdgeTimes: Topology,
	arrays.Weights: EdgeValues, arrays.EdgeFeatures: EdgeValues, arrays.EdgeRowScale: EdgeValues, arrays.EdgeColScale: EdgeValues,
	arrays.NodeFeatures: NodeValues, arrays.NodeRowScale: NodeValues,
}

// leaveOut takes from the dataset what is of no part that is open.
func (s *Store) leaveOut() {
	ds := s.ds
	if !s.Has(Topology) {
		weights := ds.Graph.Weights
		ds.Graph, ds.EdgeTimes = graph.Elsewhere(int(s.m.NumNodes), s.m.NumEdges), nil
		ds.Graph.Weights = weights
	}
	if !s.Has(EdgeValues) {
		ds.Graph.Weights, ds.EdgeFeatures = nil, nil
	}
	if f := ds.NodeFeatures; f != nil && !s.Has(NodeValues) {
		f.Data, f.RowScale = nil, nil
		if s.m.array(arrays.NodeRowScale) != nil {
			f.RowScale = make([]float32, f.Rows)
		}
	}
}

// Has reports whether parts are open.
func (s *Store) Has(parts Part) bool { return s.parts&parts == parts }

// away reports whether an array is in none of the parts.
func away(array string, parts Part) bool { return partOf[array]&^parts != 0 }

// Present returns which parts the store in dir has the files of. It opens the manifest alone.
func Present(dir string) (parts Part, err error) {
	m, err := readManifest(dir)
	if err != nil {
		return 0, err
	}
	parts = Whole
	for i := range m.Arrays {
		name := m.Arrays[i].Name
		if _, err := os.Stat(filepath.Join(dir, name+arrayFileSuffix)); err != nil {
			if partOf[name] == 0 || !errors.Is(err, os.ErrNotExist) {
				return 0, fmt.Errorf("graph: open store: %w", err)
			}
			parts &^= partOf[name]
		}
	}
	return parts, nil
}

// FileOf reports whether a store's file, as Files names it, is one of some parts.
func FileOf(file string, parts Part) bool {
	return !away(strings.TrimSuffix(file, arrayFileSuffix), parts)
}

// Files returns the names of the store's files, of some parts, the manifest last: who copies
// them in this order has no store until all are there. The copy is one for OpenPart.
func (s *Store) Files(parts Part) []string {
	var names []string
	for i := range s.m.Arrays {
		if name := s.m.Arrays[i].Name; !away(name, parts) {
			names = append(names, name+arrayFileSuffix)
		}
	}
	return slices.Concat(names, []string{Manifest})
}
