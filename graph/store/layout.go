package store

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// check tells whether the arrays that the manifest lists make a dataset. It
// reads no array.
func (m *manifest) check() error {
	n, e := m.NumNodes, m.NumEdges
	if n < 0 || n > graph.MaxNodes {
		return fmt.Errorf("%d nodes is out of range [0, %d]", n, graph.MaxNodes)
	}
	if e < 0 || m.NumClasses < 0 || m.NumClasses > math.MaxInt32 {
		return fmt.Errorf("%d edges or %d classes is out of range", e, m.NumClasses)
	}
	for i := range m.Arrays {
		a := &m.Arrays[i]
		elem, ok := graph.DTypeNamed(a.Type)
		if !ok {
			return fmt.Errorf("array %s has the unknown type %q", a.Name, a.Type)
		}
		if a.Rows < 0 || a.Cols < 0 || a.Rows > 1<<48 || a.Cols > 1<<31 || (a.Rows > 0 && a.Cols > (1<<56)/a.Rows) {
			return fmt.Errorf("array %s has the impossible shape %d×%d", a.Name, a.Rows, a.Cols)
		}
		if a.Bytes != a.Rows*a.Cols*int64(elem.Size()) {
			return fmt.Errorf("array %s has %d bytes, but %d×%d of %s are %d", a.Name, a.Bytes, a.Rows, a.Cols, a.Type, a.Rows*a.Cols*int64(elem.Size()))
		}
	}
	if m.array(arrays.Indptr) == nil || m.array(arrays.Indices) == nil {
		return fmt.Errorf("arrays %s and %s must be there", arrays.Indptr, arrays.Indices)
	}
	want := func(name string, rows, cols int64, elems ...graph.DType) error {
		a := m.array(name)
		if a == nil {
			return nil
		}
		if a.Rows != rows || (cols >= 0 && a.Cols != cols) {
			return fmt.Errorf("array %s is %d×%d, which does not fit %d nodes and %d edges", name, a.Rows, a.Cols, n, e)
		}
		for _, t := range elems {
			if t.String() == a.Type {
				return nil
			}
		}
		return fmt.Errorf("array %s has the type %s, which it may not have", name, a.Type)
	}
	nodes := n // that In's rows are of
	if m.Piece != nil {
		if err := m.Piece.check(m); err != nil {
			return err
		}
		nodes = m.array(arrays.Indptr).Rows - 1
	}
	values := []graph.DType{graph.Float32, graph.Float16, graph.BFloat16, graph.Int8, graph.Uint8}
	f32 := graph.Float32
	errs := []error{
		want(arrays.Indptr, nodes+1, 1, graph.Int64),
		want(arrays.Indices, e, 1, graph.Uint32),
		want(arrays.Weights, e, 1, f32),
		want(arrays.NodeFeatures, n, -1, values...),
		want(arrays.EdgeFeatures, e, -1, values...),
		want(arrays.NodeRowScale, n, 1, f32),
		want(arrays.EdgeRowScale, e, 1, f32),
	}
	for _, p := range [][3]string{{arrays.NodeFeatures, arrays.NodeRowScale, arrays.NodeColScale}, {arrays.EdgeFeatures, arrays.EdgeRowScale, arrays.EdgeColScale}} {
		a := m.array(p[0])
		if a == nil && (m.array(p[1]) != nil || m.array(p[2]) != nil) {
			errs = append(errs, fmt.Errorf("there are scales of %s, but it is missing", p[0]))
		}
		if a != nil {
			errs = append(errs, want(p[2], a.Cols, 1, f32))
		}
	}
	if a := m.array(arrays.Labels); a != nil {
		if a.Type == graph.Uint8.String() {
			errs = append(errs, want(arrays.Labels, n, m.NumClasses, graph.Uint8))
		} else if a.Type == f32.String() && m.Piece == nil {
			errs = append(errs, want(arrays.Labels, n, 1, f32))
		} else {
			errs = append(errs, want(arrays.Labels, n, 1, graph.Int32))
		}
	}
	errs = append(errs, want(arrays.NodeTimes, n, 1, graph.Int64), want(arrays.EdgeTimes, e, 1, graph.Int64), m.checkPartitions(),
		want(arrays.NodeIDs, n, 1, graph.Int64), want(arrays.NameBounds, n+1, 1, graph.Int64))
	for _, name := range []string{arrays.NodeNames, arrays.Recipe} {
		if a := m.array(name); a != nil {
			errs = append(errs, want(name, a.Rows, 1, graph.Uint8))
		}
	}
	if texts := m.array(arrays.NodeNames) != nil; texts != (m.array(arrays.NameBounds) != nil) || texts && m.array(arrays.NodeIDs) != nil {
		errs = append(errs, fmt.Errorf("names of nodes are numbers in %s, or texts in %s with bounds in %s", arrays.NodeIDs, arrays.NodeNames, arrays.NameBounds))
	}
	for _, name := range []string{arrays.Sources, arrays.Targets, arrays.Originals, arrays.OutIndptr, arrays.OutIndices, arrays.OutWeights} {
		a := m.array(name)
		if a != nil && m.Piece == nil {
			errs = append(errs, fmt.Errorf("array %s is of a piece of a graph, which this store is not", name))
		}
	}
	if m.Piece != nil {
		for _, name := range []string{arrays.Sources, arrays.Targets, arrays.OutIndices} {
			errs = append(errs, want(name, m.array(name).Rows, 1, graph.Uint32))
		}
		errs = append(errs, want(arrays.OutIndptr, m.array(arrays.OutIndptr).Rows, 1, graph.Int64),
			want(arrays.OutWeights, m.array(arrays.OutIndices).Rows, 1, f32), want(arrays.Originals, n, 1, graph.Uint32))
	}
	for _, name := range []string{arrays.Train, arrays.Valid, arrays.Test} {
		if a := m.array(name); a != nil {
			errs = append(errs, want(name, min(a.Rows, n), 1, graph.Uint32))
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// dataset wraps the arrays' payloads. check must have passed.
func (m *manifest) dataset(payload map[string][]byte) *graph.Dataset {
	view := func(name string) []byte { return payload[name] }
	float32s := func(name string) []float32 {
		if m.array(name) == nil {
			return nil
		}
		return arrays.View[float32](view(name))
	}
	features := func(name, rowScale, colScale string) *graph.Features {
		a := m.array(name)
		if a == nil {
			return nil
		}
		elem, _ := graph.DTypeNamed(a.Type)
		return &graph.Features{
			Rows: int(a.Rows), Cols: int(a.Cols), DType: elem,
			Data: view(name), Stride: int(a.Cols * int64(elem.Size())),
			RowScale: float32s(rowScale), ColScale: float32s(colScale),
		}
	}
	int64s := func(name string) []int64 {
		if m.array(name) == nil {
			return nil
		}
		return arrays.View[int64](view(name))
	}
	ids := func(name string) []uint32 {
		if a := m.array(name); a == nil || a.Rows == 0 {
			return nil
		}
		return arrays.View[uint32](view(name))
	}
	ds := &graph.Dataset{
		Name: m.Name,
		Graph: &graph.Graph{
			Indptr:  arrays.View[int64](view(arrays.Indptr)),
			Indices: arrays.View[uint32](view(arrays.Indices)),
			Weights: float32s(arrays.Weights),
		},
		NodeFeatures: features(arrays.NodeFeatures, arrays.NodeRowScale, arrays.NodeColScale),
		EdgeFeatures: features(arrays.EdgeFeatures, arrays.EdgeRowScale, arrays.EdgeColScale),
		NodeTimes:    int64s(arrays.NodeTimes), EdgeTimes: int64s(arrays.EdgeTimes),
		Partitions: m.partitions(payload),
		Train:      ids(arrays.Train), Valid: ids(arrays.Valid), Test: ids(arrays.Test),
		Fingerprint: m.Fingerprint,
	}
	switch {
	case m.array(arrays.NodeIDs) != nil:
		ds.Names = &graph.Names{Numbers: int64s(arrays.NodeIDs)}
	case m.array(arrays.NodeNames) != nil:
		ds.Names = &graph.Names{Text: view(arrays.NodeNames), Bounds: int64s(arrays.NameBounds)}
	}
	if m.array(arrays.Recipe) != nil {
		ds.Recipe = view(arrays.Recipe)
	}
	if a := m.array(arrays.Labels); a != nil {
		ds.Labels = &graph.Labels{NumClasses: int(m.NumClasses)}
		switch a.Type {
		case graph.Float32.String():
			ds.Labels.Values = arrays.View[float32](view(arrays.Labels))
		case graph.Uint8.String():
			ds.Labels.Multi = arrays.View[uint8](view(arrays.Labels))
		default:
			ds.Labels.Class = arrays.View[int32](view(arrays.Labels))
		}
	}
	return ds
}
