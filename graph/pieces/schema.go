package pieces

import (
	"bytes"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Common is what is alike of all pieces of a set: what the graph's tables are like, and not what is in them.
type Common struct {
	Features *features.Layout `json:"features,omitempty"` // of a row; Rows is 0; nil: there are none
	Labels   bool             `json:"labels,omitempty"`
	Multi    bool             `json:"multi,omitempty"` // a node has any number of classes
	Classes  int              `json:"classes,omitempty"`
	Weighted bool             `json:"weighted,omitempty"`
	Recipe   []byte           `json:"recipe,omitempty"` // how the data's columns became features and classes (importer.Recipe); nil: it is not known
}

// CommonOf returns what p says of all pieces of its set.
func CommonOf(p *store.Piece) (c Common, err error) {
	err = graph.Guard(func() error {
		ds := p.Dataset()
		if f := ds.NodeFeatures; f != nil {
			l := features.LayoutOf(f)
			l.Rows, l.ColScale = 0, append([]float32(nil), l.ColScale...)
			c.Features = &l
		}
		if l := ds.Labels; l != nil {
			c.Labels, c.Multi, c.Classes = true, l.IsMulti(), l.NumClasses
		}
		c.Weighted, c.Recipe = p.In.Weights != nil, bytes.Clone(ds.Recipe)
		return nil
	})
	return c, err
}

// Renumbered says whether nodes have other ids in the set than outside.
func (s *Set) Renumbered() bool { return s.m.Method != "contiguous" }

// Files returns the names of the set's own files, in its directory, the manifest last: who copies them has a set
// without pieces.
func Files() []string { return append(append([]string{}, splits[:]...), Manifest) }

// PieceName returns what the directory of piece i is called.
func PieceName(i int) string { return pieceName(i) }

// Dir returns where the set lies.
func (s *Set) Dir() string { return filepath.Clean(s.dir) }
