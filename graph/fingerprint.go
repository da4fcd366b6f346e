package graph

import (
	"crypto/sha256"
	"encoding/hex"
)

// ContentHash returns the fingerprint of the dataset's content: the SHA-256,
// in hex, over the types, shapes and SHA-256 checksums of its arrays. It is the
// Fingerprint of the store that Create makes of the dataset; the same content
// has the same fingerprint whatever format it came from and whatever it is
// called. It reads all of the data.
//
// Labels of nodes that are in no split do not count, when there are splits:
// no training and no score reads them, and formats that keep labels per split
// do not have them.
func (d *Dataset) ContentHash() string {
	var m manifest
	m.SplitLabels = d.splitLabelsSum()
	if d.Labels != nil {
		m.NumClasses = int64(d.Labels.NumClasses)
	}
	err := d.eachArray(func(name string, elem element, rows, cols int64, chunks func(func([]byte) error) error) error {
		h := sha256.New()
		err := chunks(func(p []byte) error {
			h.Write(p)
			return nil
		})
		m.Arrays = append(m.Arrays, manifestArray{Name: name, Type: elem.String(), Rows: rows, Cols: cols, SHA256: hex.EncodeToString(h.Sum(nil))})
		return err
	})
	if err != nil {
		panic(err) // nothing above returns one
	}
	return m.fingerprint()
}

// eachArray calls f with every array of the dataset, in the manifest's order.
// chunks hands the array's bytes over, in order.
func (d *Dataset) eachArray(f func(name string, elem element, rows, cols int64, chunks func(func([]byte) error) error) error) error {
	whole := func(name string, elem element, rows, cols int, p []byte) error {
		return f(name, elem, int64(rows), int64(cols), func(put func([]byte) error) error { return put(p) })
	}
	features := func(t *Features, name, rowScale, colScale string) error {
		if t == nil {
			return nil
		}
		row := t.Cols * t.DType.Size()
		err := f(name, element(t.DType), int64(t.Rows), int64(t.Cols), func(put func([]byte) error) error {
			if t.Stride == row {
				return put(t.Data[:t.Rows*row])
			}
			for i := range t.Rows {
				if err := put(t.Data[i*t.Stride : i*t.Stride+row]); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && t.RowScale != nil {
			err = whole(rowScale, element(Float32), len(t.RowScale), 1, bytesOf(t.RowScale))
		}
		if err == nil && t.ColScale != nil {
			err = whole(colScale, element(Float32), len(t.ColScale), 1, bytesOf(t.ColScale))
		}
		return err
	}
	times := func(name string, t []int64) error {
		if t == nil {
			return nil
		}
		return whole(name, elemInt64, len(t), 1, bytesOf(t))
	}
	g := d.Graph
	steps := []func() error{
		func() error { return whole(arrayIndptr, elemInt64, len(g.Indptr), 1, bytesOf(g.Indptr)) },
		func() error { return whole(arrayIndices, elemUint32, len(g.Indices), 1, bytesOf(g.Indices)) },
		func() error {
			if g.Weights == nil {
				return nil
			}
			return whole(arrayWeights, element(Float32), len(g.Weights), 1, bytesOf(g.Weights))
		},
		func() error { return features(d.NodeFeatures, arrayNodeFeatures, arrayNodeRowScale, arrayNodeColScale) },
		func() error { return features(d.EdgeFeatures, arrayEdgeFeatures, arrayEdgeRowScale, arrayEdgeColScale) },
		func() error {
			switch l := d.Labels; {
			case l == nil:
				return nil
			case l.IsMulti():
				return whole(arrayLabels, element(Uint8), g.NumNodes(), l.NumClasses, l.Multi)
			default:
				return whole(arrayLabels, elemInt32, len(l.Class), 1, bytesOf(l.Class))
			}
		},
		func() error { return whole(arrayTrain, elemUint32, len(d.Train), 1, bytesOf(d.Train)) },
		func() error { return whole(arrayValid, elemUint32, len(d.Valid), 1, bytesOf(d.Valid)) },
		func() error { return whole(arrayTest, elemUint32, len(d.Test), 1, bytesOf(d.Test)) },
		func() error { return times(arrayNodeTimes, d.NodeTimes) },
		func() error { return times(arrayEdgeTimes, d.EdgeTimes) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// splitLabelsSum hashes the labels of the nodes in the splits, in node order.
// It is "" when there are no labels or no splits.
func (d *Dataset) splitLabelsSum() string { return splitLabelsSum(d, d.Graph.NumNodes()) }

func splitLabelsSum(d *Dataset, n int) string {
	if d.Labels == nil || len(d.Train)+len(d.Valid)+len(d.Test) == 0 {
		return ""
	}
	in := make([]uint64, (n+63)/64)
	for _, s := range [][]uint32{d.Train, d.Valid, d.Test} {
		for _, v := range s {
			in[v/64] |= 1 << (v % 64)
		}
	}
	h := sha256.New()
	buf := make([]byte, 0, 1<<16)
	for v := range n {
		if in[v/64]>>(v%64)&1 == 0 {
			continue
		}
		buf = append(buf, bytesOf([]uint32{uint32(v)})...)
		if c := d.Labels.NumClasses; d.Labels.IsMulti() {
			buf = append(buf, d.Labels.Multi[v*c:(v+1)*c]...)
		} else {
			buf = append(buf, bytesOf(d.Labels.Class[v:v+1])...)
		}
		if len(buf) > 1<<15 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}
