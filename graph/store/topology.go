package store

import "github.com/gnnactor/gnnactor/graph/internal/arrays"

// The arrays of node features that grow with the nodes.
var nodeValues = []string{arrays.NodeFeatures, arrays.NodeRowScale}

// OpenTopology is Open for a copy of a store without the values of its node
// features, which lie elsewhere: on other nodes of a cluster. It does not look
// for their files. The dataset has its own fingerprint, and NodeFeatures that
// say what the rows are like and have no Data, and zeros for row scales.
func OpenTopology(dir string) (*Store, error) {
	s, err := open(dir, nodeValues)
	if err != nil {
		return nil, err
	}
	if f := s.ds.NodeFeatures; f != nil {
		f.Data, f.RowScale = nil, nil
		if s.m.array(arrays.NodeRowScale) != nil {
			f.RowScale = make([]float32, f.Rows)
		}
	}
	return s, nil
}

// Files returns the names of the store's files, the manifest last: who copies
// them in this order has no store until all are there. Without values the
// copy is one for OpenTopology.
func (s *Store) Files(values bool) []string {
	var names []string
	for i := range s.m.Arrays {
		if name := s.m.Arrays[i].Name; values || name != arrays.NodeFeatures && name != arrays.NodeRowScale {
			names = append(names, name+arrayFileSuffix)
		}
	}
	return append(names, Manifest)
}

// Whole reports whether the values of node features are here, if there are any.
func (s *Store) Whole() bool { return s.away == nil }
