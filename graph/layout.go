package graph

import (
	"fmt"
	"math"
)

// check tells whether the arrays that the manifest lists make a dataset. It
// reads no array.
func (m *manifest) check() error {
	n, e := m.NumNodes, m.NumEdges
	if n < 0 || n > maxNodes {
		return fmt.Errorf("%d nodes is out of range [0, %d]", n, maxNodes)
	}
	if e < 0 || m.NumClasses < 0 || m.NumClasses > math.MaxInt32 {
		return fmt.Errorf("%d edges or %d classes is out of range", e, m.NumClasses)
	}
	for i := range m.Arrays {
		a := &m.Arrays[i]
		elem, ok := elementNamed(a.Type)
		if !ok {
			return fmt.Errorf("array %s has the unknown type %q", a.Name, a.Type)
		}
		if a.Rows < 0 || a.Cols < 0 || a.Rows > 1<<48 || a.Cols > 1<<31 || (a.Rows > 0 && a.Cols > (1<<56)/a.Rows) {
			return fmt.Errorf("array %s has the impossible shape %d×%d", a.Name, a.Rows, a.Cols)
		}
		if a.Bytes != a.Rows*a.Cols*elem.size() {
			return fmt.Errorf("array %s has %d bytes, but %d×%d of %s are %d", a.Name, a.Bytes, a.Rows, a.Cols, a.Type, a.Rows*a.Cols*elem.size())
		}
	}
	if m.array(arrayIndptr) == nil || m.array(arrayIndices) == nil {
		return fmt.Errorf("arrays %s and %s must be there", arrayIndptr, arrayIndices)
	}
	want := func(name string, rows, cols int64, elems ...element) error {
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
	values := []element{element(Float32), element(Float16), element(BFloat16), element(Int8), element(Uint8)}
	f32 := element(Float32)
	errs := []error{
		want(arrayIndptr, n+1, 1, elemInt64),
		want(arrayIndices, e, 1, elemUint32),
		want(arrayWeights, e, 1, f32),
		want(arrayNodeFeatures, n, -1, values...),
		want(arrayEdgeFeatures, e, -1, values...),
		want(arrayNodeRowScale, n, 1, f32),
		want(arrayEdgeRowScale, e, 1, f32),
	}
	for _, p := range [][3]string{{arrayNodeFeatures, arrayNodeRowScale, arrayNodeColScale}, {arrayEdgeFeatures, arrayEdgeRowScale, arrayEdgeColScale}} {
		a := m.array(p[0])
		if a == nil && (m.array(p[1]) != nil || m.array(p[2]) != nil) {
			errs = append(errs, fmt.Errorf("there are scales of %s, but it is missing", p[0]))
		}
		if a != nil {
			errs = append(errs, want(p[2], a.Cols, 1, f32))
		}
	}
	if a := m.array(arrayLabels); a != nil {
		if a.Type == element(Uint8).String() {
			errs = append(errs, want(arrayLabels, n, m.NumClasses, element(Uint8)))
		} else {
			errs = append(errs, want(arrayLabels, n, 1, elemInt32))
		}
	}
	errs = append(errs, want(arrayNodeTimes, n, 1, elemInt64), want(arrayEdgeTimes, e, 1, elemInt64), m.checkPartitions())
	for _, name := range []string{arrayTrain, arrayValid, arrayTest} {
		if a := m.array(name); a != nil {
			errs = append(errs, want(name, min(a.Rows, n), 1, elemUint32))
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
func (m *manifest) dataset(payload map[string][]byte) *Dataset {
	view := func(name string) []byte { return payload[name] }
	float32s := func(name string) []float32 {
		if m.array(name) == nil {
			return nil
		}
		return viewOf[float32](view(name))
	}
	features := func(name, rowScale, colScale string) *Features {
		a := m.array(name)
		if a == nil {
			return nil
		}
		elem, _ := elementNamed(a.Type)
		return &Features{
			Rows: int(a.Rows), Cols: int(a.Cols), DType: DType(elem),
			Data: view(name), Stride: int(a.Cols * elem.size()),
			RowScale: float32s(rowScale), ColScale: float32s(colScale),
		}
	}
	int64s := func(name string) []int64 {
		if m.array(name) == nil {
			return nil
		}
		return viewOf[int64](view(name))
	}
	ids := func(name string) []uint32 {
		if a := m.array(name); a == nil || a.Rows == 0 {
			return nil
		}
		return viewOf[uint32](view(name))
	}
	ds := &Dataset{
		Name: m.Name,
		Graph: &Graph{
			Indptr:  viewOf[int64](view(arrayIndptr)),
			Indices: viewOf[uint32](view(arrayIndices)),
			Weights: float32s(arrayWeights),
		},
		NodeFeatures: features(arrayNodeFeatures, arrayNodeRowScale, arrayNodeColScale),
		EdgeFeatures: features(arrayEdgeFeatures, arrayEdgeRowScale, arrayEdgeColScale),
		NodeTimes:    int64s(arrayNodeTimes), EdgeTimes: int64s(arrayEdgeTimes),
		Partitions: m.partitions(payload),
		Train:      ids(arrayTrain), Valid: ids(arrayValid), Test: ids(arrayTest),
		Fingerprint: m.Fingerprint,
	}
	if a := m.array(arrayLabels); a != nil {
		ds.Labels = &Labels{NumClasses: int(m.NumClasses)}
		if a.Type == element(Uint8).String() {
			ds.Labels.Multi = viewOf[uint8](view(arrayLabels))
		} else {
			ds.Labels.Class = viewOf[int32](view(arrayLabels))
		}
	}
	return ds
}
