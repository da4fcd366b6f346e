package graph

// readStore reads a store, so that the options can be applied to it.
func (im *importer) readStore(dir string) (err error) {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Check(im.o.Context, CheckOptions{}); err != nil { // damage must not be given new checksums
		return err
	}
	if err := Guard(func() error { return im.copyStore(s) }); err != nil {
		return err
	}
	return s.CheckFiles()
}

func (im *importer) copyStore(s *Store) error {
	ds := s.Dataset()
	if im.o.Name == "" {
		im.m.Name = ds.Name
	}
	if err := ds.Validate(); err != nil {
		return s.damaged(err)
	}
	for i := range s.m.Arrays {
		im.src.bytes += s.m.Arrays[i].Bytes
	}
	if err := im.setNodes(int64(ds.Graph.NumNodes()), s.dir); err != nil {
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
		fw, err := im.startEdgeTable(arrayWeights, 1, Float32)
		if err != nil {
			return err
		}
		for i := range w {
			if err := fw.row(w[i : i+1]); err != nil {
				return err
			}
		}
	}
	if t := ds.EdgeTimes; t != nil {
		if err := im.startEdgeTimes(); err != nil {
			return err
		}
		if _, err := im.edgeTimes.a.Write(bytesOf(t)); err != nil {
			return err
		}
	}
	im.nodeTimes = append(im.nodeTimes, ds.NodeTimes...)
	if f := ds.EdgeFeatures; f != nil {
		fw, err := im.startEdgeTable(arrayEdgeFeatures, f.Cols, f.wideType())
		if err != nil {
			return err
		}
		if err := fw.copyRows(f); err != nil {
			return err
		}
	}
	if f := ds.NodeFeatures; f != nil {
		fw, err := im.features(im.arrayPath(arrayNodeFeatures), arrayNodeFeatures, f.Cols, f.wideType(), im.o.NormalizeFeatures)
		if err != nil {
			return err
		}
		defer fw.close()
		if err := fw.copyRows(f); err != nil {
			return err
		}
		if err := fw.finish(); err != nil {
			return err
		}
	}
	if l := ds.Labels; l != nil {
		im.labels.NumClasses = l.NumClasses
		im.labels.Class = append(im.labels.Class, l.Class...)
		im.labels.Multi = append(im.labels.Multi, l.Multi...)
	}
	for i := range ds.Partitions { // of nodes, which stay what they are
		if err := im.putPartition(&ds.Partitions[i]); err != nil {
			return err
		}
	}
	im.splits = [3][]uint32{append([]uint32(nil), ds.Train...), append([]uint32(nil), ds.Valid...), append([]uint32(nil), ds.Test...)}
	return nil
}

// wideType returns the type that holds every value, once scales are applied.
func (f *Features) wideType() DType {
	if f.DType == Uint8 || f.RowScale != nil || f.ColScale != nil {
		return Float32
	}
	return f.DType
}

func (fw *featureWriter) copyRows(f *Features) error {
	x := make([]float32, f.Cols)
	for i := range f.Rows {
		f.Row(x, i)
		if err := fw.row(x); err != nil {
			return err
		}
	}
	return nil
}
