package importer

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/store"
)

// readStore reads a store, so that the options can be applied to it.
func (im *importer) readStore(dir string) (err error) {
	s, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Check(im.ctx, store.CheckOptions{}); err != nil { // damage must not be given new checksums
		return err
	}
	if err := graph.Guard(func() error { return im.copyStore(s, dir) }); err != nil {
		return err
	}
	return s.CheckFiles()
}

func (im *importer) copyStore(s *store.Store, dir string) error {
	ds := s.Dataset()
	if im.o.Name == "" {
		im.w.SetName(ds.Name)
	}
	if err := s.Validate(im.ctx); err != nil {
		return err
	}
	im.src.bytes += s.Bytes()
	if err := im.setNodes(int64(ds.Graph.NumNodes()), dir); err != nil {
		return err
	}
	if err := im.startEdges(); err != nil {
		return err
	}
	for v := range ds.Graph.NumNodes() {
		for _, u := range ds.Graph.InNeighbors(uint32(v)) {
			if err := im.edges.add(u, uint32(v)); err != nil {
				return err
			}
		}
	}
	if w := ds.Graph.Weights; w != nil {
		fw, err := im.startEdgeTable(arrays.Weights, 1, graph.Float32)
		if err != nil {
			return err
		}
		for i := range w {
			if err := fw.Row(w[i : i+1]); err != nil {
				return err
			}
		}
	}
	if t := ds.EdgeTimes; t != nil {
		if err := im.startEdgeTimes(); err != nil {
			return err
		}
		if _, err := im.edgeTimes.Write(arrays.Bytes(t)); err != nil {
			return err
		}
	}
	im.nodeTimes = append(im.nodeTimes, ds.NodeTimes...)
	if f := ds.EdgeFeatures; f != nil {
		fw, err := im.startEdgeTable(arrays.EdgeFeatures, f.Cols, wideType(f))
		if err != nil {
			return err
		}
		if err := copyRows(fw, f); err != nil {
			return err
		}
	}
	if f := ds.NodeFeatures; f != nil && im.keepsScales(f) {
		if err := im.copyScaled(f); err != nil {
			return err
		}
	} else if f != nil {
		fw, err := im.startNodeFeatures(f.Cols, wideType(f), false)
		if err != nil {
			return err
		}
		defer fw.Close()
		if err := copyRows(fw, f); err != nil {
			return err
		}
		if err := fw.Finish(); err != nil {
			return err
		}
	}
	if l := ds.Labels; l != nil {
		im.labels.NumClasses = l.NumClasses
		im.labels.Class = append(im.labels.Class, l.Class...)
		im.labels.Multi = append(im.labels.Multi, l.Multi...)
		im.labels.Values = append(im.labels.Values, l.Values...)
	}
	im.recipe = slices.Clone(ds.Recipe)
	if n := ds.Names; n != nil {
		im.names = &graph.Names{Numbers: slices.Clone(n.Numbers), Text: slices.Clone(n.Text), Bounds: slices.Clone(n.Bounds)}
	}
	for i := range ds.Partitions { // of nodes, which stay what they are
		if err := im.w.PutPartition(&ds.Partitions[i]); err != nil {
			return err
		}
	}
	im.splits = [3][]uint32{append([]uint32(nil), ds.Train...), append([]uint32(nil), ds.Valid...), append([]uint32(nil), ds.Test...)}
	return nil
}

// keepsScales tells whether node features are scaled, and to be stored as they are.
func (im *importer) keepsScales(f *graph.Features) bool {
	if f.RowScale == nil && f.ColScale == nil || im.o.NormalizeFeatures {
		return false
	}
	is := graph.Encoding{DType: f.DType, PerColumn: f.ColScale != nil}
	return im.o.FeatureType == graph.Encoding{} || im.o.FeatureType == is && (f.RowScale == nil || f.ColScale == nil)
}

// copyScaled writes node features and their scales as they are stored.
func (im *importer) copyScaled(f *graph.Features) error {
	out, err := im.w.Array(arrays.NodeFeatures, f.DType, f.Cols)
	if err != nil {
		return err
	}
	defer out.Close()
	for i := range f.Rows {
		if _, err := out.Write(f.Data[i*f.Stride:][:f.Cols*f.DType.Size()]); err != nil {
			return err
		}
	}
	if err := out.Finish(); err != nil {
		return err
	}
	for name, scale := range map[string][]float32{arrays.NodeRowScale: f.RowScale, arrays.NodeColScale: f.ColScale} {
		if scale == nil {
			continue
		}
		if err := im.w.Put(name, graph.Float32, 1, arrays.Bytes(scale)); err != nil {
			return err
		}
	}
	return nil
}

// wideType returns the type that holds every value, once scales are applied.
func wideType(f *graph.Features) graph.DType {
	if f.DType == graph.Uint8 || f.RowScale != nil || f.ColScale != nil {
		return graph.Float32
	}
	return f.DType
}

func copyRows(t *store.TableWriter, f *graph.Features) error {
	x := make([]float32, f.Cols)
	for i := range f.Rows {
		f.Row(x, i)
		if err := t.Row(x); err != nil {
			return err
		}
	}
	return nil
}
