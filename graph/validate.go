package graph

import (
	"context"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Validate checks that the parts fit together and that every value can be
// used: the graph's invariants, shapes, ids and classes in range, finite
// weights and features, splits without duplicates or overlap whose nodes have
// labels (when there are any). It reads all of the data. Errors wrap ErrFormat
// and name the place, or wrap the cause of ctx when that ends first.
func (d *Dataset) Validate(ctx context.Context) error {
	stop := interrupt.New(ctx)
	err := Guard(func() error { return d.validate(stop) })
	if over := stop.Err(); over != nil {
		return fmt.Errorf("graph: interrupted while the data was checked: %w", over)
	}
	return err
}

func (d *Dataset) validate(stop *interrupt.Poll) error {
	if d.Graph == nil {
		return dataerr.Bad("the dataset has no graph; set Graph")
	}
	if err := d.Graph.validate(stop, d.Graph.NumNodes()); err != nil {
		return dataerr.Bad("%w", dataerr.Unprefixed(err))
	}
	n := d.Graph.NumNodes()
	if int64(n) > MaxNodes {
		return dataerr.Bad("%d nodes are more than the %d that ids can name", n, MaxNodes)
	}
	if i := firstNotFinite(stop, d.Graph.Weights); i >= 0 {
		return dataerr.Bad("weights[%d] = %v; weights must be finite", i, d.Graph.Weights[i])
	}
	if err := d.NodeFeatures.validate(stop, "node features", "nodes", int64(n)); err != nil {
		return err
	}
	if err := d.EdgeFeatures.validate(stop, "edge features", "edges", d.Graph.NumEdges()); err != nil {
		return err
	}
	if err := d.Labels.Validate(n); err != nil {
		return err
	}
	if d.NodeTimes != nil && len(d.NodeTimes) != n {
		return dataerr.Bad("%d times for %d nodes; give one each, or none", len(d.NodeTimes), n)
	}
	if d.EdgeTimes != nil && int64(len(d.EdgeTimes)) != d.Graph.NumEdges() {
		return dataerr.Bad("%d times for %d edges; give one each, or none", len(d.EdgeTimes), d.Graph.NumEdges())
	}
	if err := d.Names.Validate(n); err != nil {
		return err
	}
	for i := range d.Partitions {
		if stop.Err() != nil {
			break
		}
		if err := d.Partitions[i].Validate(n); err != nil {
			return err
		}
	}
	return d.ValidateSplits(n)
}

func firstNotFinite(stop *interrupt.Poll, x []float32) int {
	for from, to := range stop.Pieces(len(x)) {
		for i, v := range x[from:to] {
			if v-v != 0 { // NaN and infinities
				return from + i
			}
		}
	}
	return -1
}

func (f *Features) validate(stop *interrupt.Poll, what, of string, rows int64) error {
	if f == nil {
		return nil
	}
	if int64(f.Rows) != rows {
		return dataerr.Bad("%s have %d rows for %d %s; give one row each", what, f.Rows, rows, of)
	}
	if !f.DType.OfFeatures() {
		return dataerr.Bad("%s have the unknown type %s; use Float32, Float16, BFloat16, Int8 or Uint8", what, f.DType)
	}
	row := f.Cols * f.DType.Size()
	if f.Cols < 0 || f.Stride < row {
		return dataerr.Bad("%s have %d columns of %s in a stride of %d bytes; a row needs %d", what, f.Cols, f.DType, f.Stride, row)
	}
	if need := (f.Rows-1)*f.Stride + row; f.Rows > 0 && len(f.Data) < need {
		return dataerr.Bad("%s have %d bytes; %d rows of stride %d need %d", what, len(f.Data), f.Rows, f.Stride, need)
	}
	if f.RowScale != nil && len(f.RowScale) != f.Rows || f.ColScale != nil && len(f.ColScale) != f.Cols {
		return dataerr.Bad("%s of %d×%d have %d row scales and %d column scales", what, f.Rows, f.Cols, len(f.RowScale), len(f.ColScale))
	}
	if (f.RowScale != nil || f.ColScale != nil) && f.DType != Int8 {
		return dataerr.Bad("%s have scales, which only int8 uses, but are %s", what, f.DType)
	}
	if i := firstNotFinite(stop, f.RowScale); i >= 0 {
		return dataerr.Bad("%s: row scale %d is %v; it must be finite", what, i, f.RowScale[i])
	}
	if i := firstNotFinite(nil, f.ColScale); i >= 0 {
		return dataerr.Bad("%s: column scale %d is %v; it must be finite", what, i, f.ColScale[i])
	}
	if f.DType == Uint8 || f.DType == Int8 {
		return nil
	}
	x := make([]float32, f.Cols)
	for i := range f.Rows {
		if stop.Ended() {
			break
		}
		f.Row(x, i)
		if j := firstNotFinite(nil, x); j >= 0 {
			return dataerr.Bad("%s: row %d, column %d is %v; values must be finite", what, i, j, x[j])
		}
	}
	return nil
}

// Validate checks that there is a label for each of so many nodes, of a class in
// range. Errors wrap ErrFormat.
func (l *Labels) Validate(nodes int) error {
	if l == nil {
		return nil
	}
	if l.NumClasses < 0 || l.NumClasses > math.MaxInt32 {
		return dataerr.Bad("%d classes is out of range", l.NumClasses)
	}
	if l.IsMulti() {
		if l.Class != nil || l.Values != nil {
			return dataerr.Bad("labels are both single (Class) and multi (Multi), or numbers (Values), too; set one of them")
		}
		if len(l.Multi) != nodes*l.NumClasses {
			return dataerr.Bad("there are %d label values for %d nodes of %d classes", len(l.Multi), nodes, l.NumClasses)
		}
		for i, v := range l.Multi {
			if v > 1 {
				return dataerr.Bad("label of node %d, class %d is %d; it must be 0 or 1", i/l.NumClasses, i%l.NumClasses, v)
			}
		}
		return nil
	}
	if l.Values != nil {
		if l.Class != nil || l.NumClasses != 1 {
			return dataerr.Bad("labels that are numbers (Values) have %d classes; set NumClasses to 1, and no Class", l.NumClasses)
		}
		if len(l.Values) != nodes {
			return dataerr.Bad("there are %d labels for %d nodes; give one each, NaN for those without", len(l.Values), nodes)
		}
		for v, x := range l.Values {
			if math.IsInf(float64(x), 0) {
				return dataerr.Bad("label of node %d is infinite; use NaN for a node without label", v)
			}
		}
		return nil
	}
	if len(l.Class) != nodes {
		return dataerr.Bad("there are %d labels for %d nodes; give one each, Unlabeled (-1) for those without", len(l.Class), nodes)
	}
	for v, c := range l.Class {
		if c != Unlabeled && (c < 0 || int(c) >= l.NumClasses) {
			return dataerr.Bad("label of node %d is %d, out of range [0, %d); use -1 for a node without label", v, c, l.NumClasses)
		}
	}
	return nil
}

// ValidateSplits checks that the splits name nodes below nodes, each in one split and
// once, that have labels if there are any. It reads no more than splits and labels.
// Errors wrap ErrFormat.
func (d *Dataset) ValidateSplits(nodes int) error {
	owner := make([]uint8, nodes)
	names := [...]string{"", arrays.Train, arrays.Valid, arrays.Test}
	for k, split := range [][]uint32{d.Train, d.Valid, d.Test} {
		name := names[k+1]
		for i, v := range split {
			if int64(v) >= int64(nodes) {
				return dataerr.Bad("%s[%d]: node %d is out of range [0, %d)", name, i, v, nodes)
			}
			if o := owner[v]; o == uint8(k+1) {
				return dataerr.Bad("%s[%d]: node %d is in the split twice; list it once", name, i, v)
			} else if o != 0 {
				return dataerr.Bad("%s[%d]: node %d is in split %s too; a node may be in one split only, or scores would be of nodes that were trained on", name, i, v, names[o])
			}
			owner[v] = uint8(k + 1)
			if d.Labels != nil && !d.Labels.Known(v) {
				return dataerr.Bad("%s[%d]: node %d has no label; take it out of the split or give it one", name, i, v)
			}
		}
	}
	return nil
}
