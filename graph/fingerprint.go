package graph

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Array is one of the flat arrays that a dataset consists of. A store keeps each in a
// file of its name.
type Array struct {
	Name       string
	DType      DType
	Rows, Cols int64
	Chunks     iter.Seq[[]byte] // the values, row-major and little-endian; they alias the dataset
}

// Arrays returns the arrays of the dataset in the order in which a store lists them,
// without partitions. The dataset must be valid.
func (d *Dataset) Arrays() iter.Seq[Array] {
	return func(yield func(Array) bool) {
		g := d.Graph
		list := []Array{
			flat(arrays.Indptr, Int64, g.Indptr),
			flat(arrays.Indices, Uint32, g.Indices),
		}
		if g.Weights != nil {
			list = append(list, flat(arrays.Weights, Float32, g.Weights))
		}
		list = d.NodeFeatures.appendArrays(list, arrays.NodeFeatures, arrays.NodeRowScale, arrays.NodeColScale)
		list = d.EdgeFeatures.appendArrays(list, arrays.EdgeFeatures, arrays.EdgeRowScale, arrays.EdgeColScale)
		switch l := d.Labels; {
		case l == nil:
		case l.IsMulti():
			multi := flat(arrays.Labels, Uint8, l.Multi)
			multi.Rows, multi.Cols = int64(g.NumNodes()), int64(l.NumClasses)
			list = append(list, multi)
		case l.Values != nil:
			list = append(list, flat(arrays.Labels, Float32, l.Values))
		default:
			list = append(list, flat(arrays.Labels, Int32, l.Class))
		}
		list = append(list, flat(arrays.Train, Uint32, d.Train), flat(arrays.Valid, Uint32, d.Valid), flat(arrays.Test, Uint32, d.Test))
		if d.NodeTimes != nil {
			list = append(list, flat(arrays.NodeTimes, Int64, d.NodeTimes))
		}
		if d.EdgeTimes != nil {
			list = append(list, flat(arrays.EdgeTimes, Int64, d.EdgeTimes))
		}
		if n := d.Names; n != nil && n.Numbers != nil {
			list = append(list, flat(arrays.NodeIDs, Int64, n.Numbers))
		} else if n != nil {
			list = append(list, flat(arrays.NodeNames, Uint8, n.Text), flat(arrays.NameBounds, Int64, n.Bounds))
		}
		if d.Recipe != nil {
			list = append(list, flat(arrays.Recipe, Uint8, d.Recipe))
		}
		for _, a := range list {
			if !yield(a) {
				return
			}
		}
	}
}

// flat is an array of one column that lies in memory.
func flat[T arrays.Number](name string, t DType, x []T) Array {
	return Array{name, t, int64(len(x)), 1, func(yield func([]byte) bool) { yield(arrays.Bytes(x)) }}
}

func (f *Features) appendArrays(list []Array, name, rowScale, colScale string) []Array {
	if f == nil {
		return list
	}
	row := f.Cols * f.DType.Size()
	list = append(list, Array{name, f.DType, int64(f.Rows), int64(f.Cols), func(yield func([]byte) bool) {
		if f.Stride == row {
			yield(f.Data[:f.Rows*row])
			return
		}
		for i := range f.Rows {
			if !yield(f.Data[i*f.Stride : i*f.Stride+row]) {
				return
			}
		}
	}})
	if f.RowScale != nil {
		list = append(list, flat(rowScale, Float32, f.RowScale))
	}
	if f.ColScale != nil {
		list = append(list, flat(colScale, Float32, f.ColScale))
	}
	return list
}

// hashedAtOnce is how many bytes are hashed between two questions to a context.
const hashedAtOnce = 1 << 20

// ContentHash returns the fingerprint of the dataset's content: the SHA-256,
// in hex, over the types, shapes and SHA-256 checksums of its arrays. It is the
// Fingerprint of the store that store.Create makes of the dataset; the same content
// has the same fingerprint whatever format it came from and whatever it is
// called. It reads all of the data, unless ctx ends first: the error wraps its cause.
//
// Labels of nodes that are in no split do not count, when there are splits:
// no training and no score reads them, and formats that keep labels per split
// do not have them.
func (d *Dataset) ContentHash(ctx context.Context) (string, error) {
	stop := interrupt.New(ctx)
	var list []arrays.Info
	for a := range d.Arrays() {
		h := sha256.New()
		for p := range a.Chunks {
			for len(p) > 0 && stop.Err() == nil {
				k := min(len(p), hashedAtOnce)
				h.Write(p[:k])
				p = p[k:]
			}
		}
		list = append(list, arrays.Info{Name: a.Name, Type: a.DType.String(), Rows: a.Rows, Cols: a.Cols, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
	var l Labels
	if d.Labels != nil {
		l = *d.Labels
	}
	split := arrays.SplitLabels(d.Graph.NumNodes(), l.NumClasses, l.bits(), l.Multi, d.Train, d.Valid, d.Test)
	if err := stop.Err(); err != nil {
		return "", fmt.Errorf("graph: interrupted while the data was hashed: %w", err)
	}
	return arrays.Fingerprint(list, int64(l.NumClasses), split), nil
}

// bits returns Class, or the bits of Values.
func (l *Labels) bits() []int32 {
	if l.Values != nil {
		return arrays.View[int32](arrays.Bytes(l.Values))
	}
	return l.Class
}
