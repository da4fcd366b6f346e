package graph

import "github.com/gnnactor/gnnactor/graph/internal/arrays"

// Summary says what a dataset holds.
type Summary struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Nodes       int64  `json:"nodes"`
	Edges       int64  `json:"edges"`
	Weighted    bool   `json:"weighted"`
	// In-degrees.
	DegreeMin    int64   `json:"degree_min"`
	DegreeMean   float64 `json:"degree_mean"`
	DegreeMedian int64   `json:"degree_median"` // the lower one of two
	DegreeMax    int64   `json:"degree_max"`
	// Isolated nodes have neither incoming nor outgoing edges.
	Isolated      int64          `json:"isolated"`
	SelfLoops     int64          `json:"self_loops"`
	ParallelEdges int64          `json:"parallel_edges"` // beyond the first, in sorted rows
	NodeFeatures  *TableSummary  `json:"node_features,omitempty"`
	EdgeFeatures  *TableSummary  `json:"edge_features,omitempty"`
	Classes       int            `json:"classes"`
	MultiLabel    bool           `json:"multi_label"`
	Numbers       bool           `json:"numbers,omitempty"` // labels are numbers, and Classes 1
	Labeled       int64          `json:"labeled"`           // nodes with a label; all, when multi-label
	Splits        map[string]int `json:"splits"`            // sizes of train, valid and test
	Named         bool           `json:"named"`             // nodes have names that are not their numbers
	NodeTimes     bool           `json:"node_times"`
	EdgeTimes     bool           `json:"edge_times"`
	Bytes         int64          `json:"bytes"` // of all arrays
	// Partitions that are saved with the data.
	Partitions []PartitionSummary `json:"partitions,omitempty"`
}

// PartitionSummary says how a partition was made and how even it is.
type PartitionSummary struct {
	Method  string `json:"method"`
	Parts   int    `json:"parts"`
	Seed    uint64 `json:"seed"`
	Largest int    `json:"largest"` // nodes of the largest cluster
	SHA256  string `json:"sha256"`
}

// TableSummary says what a table of features holds.
type TableSummary struct {
	Rows  int    `json:"rows"`
	Cols  int    `json:"cols"`
	DType string `json:"dtype"`
	Bytes int64  `json:"bytes"`
}

// Summary reads the graph and the labels, but no features, and says what is
// there. The graph must be valid.
func (d *Dataset) Summary() Summary {
	g := d.Graph
	n := g.NumNodes()
	s := Summary{
		Name: d.Name, Fingerprint: d.Fingerprint, Nodes: int64(n), Edges: g.NumEdges(), Weighted: g.Weights != nil,
		NodeFeatures: d.NodeFeatures.summary(), EdgeFeatures: d.EdgeFeatures.summary(),
		Splits: map[string]int{arrays.Train: len(d.Train), arrays.Valid: len(d.Valid), arrays.Test: len(d.Test)},
	}
	s.Bytes = int64(len(g.Indptr))*8 + int64(len(g.Indices)+len(g.Weights))*4 + int64(len(d.Train)+len(d.Valid)+len(d.Test))*4
	if s.NodeFeatures != nil {
		s.Bytes += s.NodeFeatures.Bytes
	}
	if s.EdgeFeatures != nil {
		s.Bytes += s.EdgeFeatures.Bytes
	}
	if l := d.Labels; l != nil {
		s.Classes, s.MultiLabel, s.Labeled = l.NumClasses, l.IsMulti(), int64(n)
		s.Numbers = l.Values != nil
		s.Bytes += int64(len(l.Class)+len(l.Values))*4 + int64(len(l.Multi))
		for v := range len(l.Class) + len(l.Values) {
			if !l.Known(uint32(v)) {
				s.Labeled--
			}
		}
	}
	if s.Named = d.Names != nil; s.Named {
		s.Bytes += int64(len(d.Names.Numbers)+len(d.Names.Bounds))*8 + int64(len(d.Names.Text))
	}
	s.Bytes += int64(len(d.Recipe))
	s.NodeTimes, s.EdgeTimes = d.NodeTimes != nil, d.EdgeTimes != nil
	s.Bytes += int64(len(d.NodeTimes)+len(d.EdgeTimes)) * 8
	for i := range d.Partitions {
		p := d.Partitions[i].summary()
		s.Bytes += int64(n) * 4
		s.Partitions = append(s.Partitions, p)
	}
	s.degrees(g)
	return s
}

func (s *Summary) degrees(g *Graph) {
	n := g.NumNodes()
	if n == 0 {
		return
	}
	s.DegreeMean = float64(s.Edges) / float64(n)
	s.DegreeMin = int64(g.Degree(0))
	source := make([]uint64, (n+63)/64) // nodes with an outgoing edge
	for v := range n {
		row := g.InNeighbors(uint32(v))
		s.DegreeMin, s.DegreeMax = min(s.DegreeMin, int64(len(row))), max(s.DegreeMax, int64(len(row)))
		for i, u := range row {
			source[u/64] |= 1 << (u % 64)
			if int(u) == v {
				s.SelfLoops++
			}
			if i > 0 && u == row[i-1] {
				s.ParallelEdges++
			}
		}
	}
	count := make([]int64, s.DegreeMax+1)
	for v := range n {
		d := g.Degree(uint32(v))
		count[d]++
		if d == 0 && source[v/64]>>(v%64)&1 == 0 {
			s.Isolated++
		}
	}
	for d, below := 0, int64(0); d < len(count); d++ {
		if below += count[d]; 2*below >= int64(n) {
			s.DegreeMedian = int64(d)
			return
		}
	}
}

func (f *Features) summary() *TableSummary {
	if f == nil {
		return nil
	}
	return &TableSummary{
		Rows: f.Rows, Cols: f.Cols, DType: f.DType.String(),
		Bytes: int64(f.Rows)*int64(f.Cols)*int64(f.DType.Size()) + int64(len(f.RowScale)+len(f.ColScale))*4,
	}
}
