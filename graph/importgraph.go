package graph

import (
	"fmt"
	"os"
	"path/filepath"
)

// buildGraph turns the spooled edges into the store's rows, and puts weights
// and edge features in their order.
func (im *importer) buildGraph() error {
	s := im.edges
	if err := s.flush(); err != nil {
		return err
	}
	carry := im.weights != nil || im.edgeFeatures != nil
	if carry && s.count >= noOrigin {
		return badData("%d edges with weights or features are more than the supported %d", s.count, int64(noOrigin))
	}
	b := cscBuilder{undirected: im.o.Undirected, selfLoops: im.o.SelfLoops, dedup: im.o.Undirected || im.o.DropDuplicates}
	indptrArray, err := im.mapped(arrayIndptr, elemInt64, im.nodes+1)
	if err != nil {
		return err
	}
	defer indptrArray.close()
	indptr := viewOf[int64](indptrArray.payload())
	total, err := b.count(indptr, s.each)
	if err != nil {
		return err
	}
	indicesArray, err := im.mapped(arrayIndices, elemUint32, total)
	if err != nil {
		return err
	}
	defer indicesArray.close()
	indices := viewOf[uint32](indicesArray.payload())
	var origin []uint32
	var originArray *mappedArray
	if carry {
		if originArray, err = im.mapped("scratch-origin", elemUint32, total); err != nil {
			return err
		}
		defer originArray.close()
		origin = viewOf[uint32](originArray.payload())
	}
	if err := b.place(indptr, indices, origin, s.each); err != nil {
		return err
	}
	if err := s.drop(); err != nil {
		return err
	}
	total = b.sortRows(indptr, indices, origin)
	im.m.NumEdges = total
	if err := indptrArray.finish(im.nodes + 1); err != nil {
		return err
	}
	if err := indicesArray.finish(total); err != nil {
		return err
	}
	if im.weights != nil {
		if err := im.followEdges(im.weights, arrayWeights, origin[:total], true); err != nil {
			return err
		}
	}
	if im.edgeFeatures != nil {
		return im.followEdges(im.edgeFeatures, arrayEdgeFeatures, origin[:total], false)
	}
	return nil
}

// drop gives the spool's disk space back.
func (s *edgeSpool) drop() error {
	s.f.Close()
	s.src, s.dst, s.spare = nil, nil, nil
	if err := os.Remove(s.path); err != nil {
		return writeError(s.im.shown(s.path), err)
	}
	return nil
}

// followEdges writes a table that was spooled in input order in the order of
// the edges. Added self-loops get weight 1 or features 0.
func (im *importer) followEdges(table *featureWriter, name string, origin []uint32, weight bool) error {
	in := table.a
	defer in.close()
	if err := in.flush(); err != nil {
		return err
	}
	rowBytes := in.cols * in.elem.size()
	if in.n != im.edges.count*rowBytes {
		return badData("there are %s for %d edges, but %d edges; give one row per edge", name, in.n/max(rowBytes, 1), im.edges.count)
	}
	all, err := mapFile(in.f, headerSize+in.n, false)
	if err != nil {
		return fmt.Errorf("graph: map %s: %w", im.shown(in.path), err)
	}
	defer unmapFile(in.f, all, false)
	rows := all[headerSize:]
	out, err := im.array(name, in.elem, in.cols)
	if err != nil {
		return err
	}
	defer out.close()
	added := make([]byte, rowBytes)
	if weight {
		copy(added, bytesOf([]float32{1}))
	}
	for i, e := range origin {
		if i&0xfffff == 0 && im.o.Context.Err() != nil {
			return im.o.Context.Err()
		}
		row := added
		if e != noOrigin {
			row = rows[int64(e)*rowBytes:][:rowBytes]
		}
		if _, err := out.Write(row); err != nil {
			return err
		}
	}
	if err := out.finish(); err != nil {
		return err
	}
	if err := os.Remove(in.path); err != nil {
		return writeError(im.shown(in.path), err)
	}
	return nil
}

// startEdgeTable opens the scratch file of weights or edge features.
func (im *importer) startEdgeTable(name string, cols int, wide DType) (*featureWriter, error) {
	weight := name == arrayWeights
	fw, err := im.features(filepath.Join(im.scratchDir(), name), name, cols, wide, false)
	if err != nil {
		return nil, err
	}
	if weight {
		// Weights are float32 whatever their values.
		fw.a.elem, fw.wide = element(Float32), Float32
		im.weights = fw
	} else {
		im.edgeFeatures = fw
	}
	return fw, nil
}
