package graph

// Dataset is a graph with what is known about its nodes and edges.
type Dataset struct {
	Name         string
	Graph        *Graph
	NodeFeatures *Features // NumNodes rows, or nil
	EdgeFeatures *Features // NumEdges rows in CSC order, or nil
	Labels       *Labels   // NumNodes rows, or nil
	NodeTimes    []int64   // of each node, in any unit, or nil
	EdgeTimes    []int64   // of each edge in CSC order, or nil
	Names        *Names    // what the data calls the nodes; nil: by their numbers
	Recipe       []byte    // how its columns became features and classes (importer.Recipe, in JSON), or nil
	Train        []uint32  // node ids of the splits; empty when there is none
	Valid        []uint32
	Test         []uint32
	Fingerprint  string // SHA-256 (hex) over the content; part of a run's identity
	// Partitions are saved with the data, and no part of its fingerprint.
	Partitions []Partition
}

// Consecutive returns n ids from first on.
func Consecutive(first uint32, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = first + uint32(i)
	}
	return ids
}

// Unlabeled marks a node without a label in Labels.Class.
const Unlabeled = -1

// Labels are the classes of the nodes, or a number that each has.
type Labels struct {
	NumClasses int     // of Values 1
	Class      []int32 // single-label: class of each node or Unlabeled; nil when multi-label
	Multi      []uint8 // multi-label: NumNodes×NumClasses of 0 or 1, row-major; nil when single-label
	// Values, in place of Class and Multi, is what regression learns of each node; NaN: nothing is known.
	Values []float32
}

// Known reports whether node v has a label. With several labels a node all have.
func (l *Labels) Known(v uint32) bool {
	switch {
	case l.Values != nil:
		return l.Values[v] == l.Values[v]
	case l.Class != nil:
		return l.Class[v] != Unlabeled
	}
	return true
}

// IsMulti reports whether a node can have several labels.
func (l *Labels) IsMulti() bool { return l.Multi != nil }

// Of returns which of several labels node v has: NumClasses of 0 or 1.
func (l *Labels) Of(v uint32) []uint8 {
	return l.Multi[int(v)*l.NumClasses : (int(v)+1)*l.NumClasses]
}

// AppendClasses appends the class of each node to dst.
func (l *Labels) AppendClasses(dst []int32, nodes []uint32) []int32 {
	for _, v := range nodes {
		dst = append(dst, l.Class[v])
	}
	return dst
}

// AppendMulti appends Of each node to dst.
func (l *Labels) AppendMulti(dst []uint8, nodes []uint32) []uint8 {
	for _, v := range nodes {
		dst = append(dst, l.Of(v)...)
	}
	return dst
}
