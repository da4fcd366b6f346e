package graph

import (
	"bufio"
	"fmt"
	"io"
	"math"
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
	carry := im.weights != nil || im.edgeFeatures != nil || im.edgeTimes != nil
	if carry && s.count >= noOrigin {
		return badData("%d edges with weights or features are more than the supported %d", s.count, int64(noOrigin))
	}
	b := cscBuilder{undirected: im.o.Undirected, selfLoops: im.o.SelfLoops}
	indptr := make([]int64, im.nodes+1)
	if _, err := b.count(indptr, s.each); err != nil {
		return err
	}
	indices, err := im.array(arrayIndices, elemUint32, 1)
	if err != nil {
		return err
	}
	defer indices.close()
	var origin *arrayWriter
	if carry {
		if origin, err = im.arrayAt(filepath.Join(im.scratchDir(), "origin"), "origin", elemUint32, 1); err != nil {
			return err
		}
		defer origin.close()
	}
	if err := im.writeRows(&b, indptr, indices, origin); err != nil {
		return err
	}
	if err := s.drop(); err != nil {
		return err
	}
	im.m.NumEdges = indptr[im.nodes]
	if err := im.put(arrayIndptr, elemInt64, 1, bytesOf(indptr)); err != nil {
		return err
	}
	if err := indices.finish(); err != nil {
		return err
	}
	if im.weights != nil {
		if err := im.followEdges(im.weights, arrayWeights, origin, bytesOf([]float32{1})); err != nil {
			return err
		}
	}
	if im.edgeFeatures != nil {
		if err := im.followEdges(im.edgeFeatures, arrayEdgeFeatures, origin, nil); err != nil {
			return err
		}
	}
	if im.edgeTimes != nil {
		return im.followEdges(im.edgeTimes, arrayEdgeTimes, origin, bytesOf([]int64{math.MinInt64}))
	}
	return nil
}

// Rows are put together in ranges of about rangeEdges edges. When the edges are
// not sorted by destination, each range takes a pass over the spool, but there
// are no more than maxRanges passes: so memory is a small part of the store's,
// and time does not grow with the square of the edges.
const (
	rangeEdges = 16 << 20
	maxRanges  = 8
)

// writeRows writes the rows that indptr bounds, as count left it, and changes
// it to the bounds of what was written.
func (im *importer) writeRows(b *cscBuilder, indptr []int64, indices, origin *arrayWriter) error {
	dedup := im.o.Undirected || im.o.DropDuplicates
	n := len(indptr) - 1
	size := im.o.rangeEdges
	if size == 0 {
		size = max(rangeEdges, (indptr[n]+maxRanges-1)/maxRanges)
	}
	sorted := !im.edges.unsorted && !im.o.Undirected
	taken := int64(0) // edges of a sorted spool in earlier ranges
	var row, origins []uint32
	written := int64(0)
	base := int64(0) // where the range starts, before duplicates go
	for lo := 0; lo < n; {
		hi := lo + 1
		for hi < n && indptr[hi+1]-base <= size {
			hi++
		}
		indptr[lo] = base
		end := indptr[hi]
		if k := end - base; k > int64(len(row)) {
			row = make([]uint32, k)
			if origin != nil {
				origins = make([]uint32, k)
			}
		}
		var part []uint32
		if origin != nil {
			part = origins[:end-base]
		}
		edges, from := im.edges.each, int64(0)
		if sorted {
			from = taken
			edges = func(yield func(src, dst []uint32) error) (err error) {
				taken, err = im.edges.eachRow(taken, hi, yield)
				return err
			}
		}
		if err := b.place(indptr, lo, hi, row, part, from, edges); err != nil {
			return err
		}
		bounds := indptr[lo : hi+1]
		sortRows(bounds, row, part)
		kept := end - base
		if dedup {
			kept = compactRows(bounds, written, row, part)
		}
		indptr[lo] = written
		written += kept
		if _, err := indices.Write(bytesOf(row[:kept])); err != nil {
			return err
		}
		if origin != nil {
			if _, err := origin.Write(bytesOf(part[:kept])); err != nil {
				return err
			}
		}
		lo, base = hi, end
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
// the edges, whose indices in input order are in origin. Added self-loops get
// the row loop, or zeros.
func (im *importer) followEdges(table *featureWriter, name string, origin *arrayWriter, loop []byte) error {
	in := table.a
	defer in.close()
	if err := in.flush(); err != nil {
		return err
	}
	rowBytes := in.cols * in.elem.size()
	if in.n != im.edges.count*rowBytes {
		return badData("there are %s for %d edges, but %d edges; give one row per edge", name, in.n/max(rowBytes, 1), im.edges.count)
	}
	if err := origin.flush(); err != nil {
		return err
	}
	err := withMapped(in.f, headerSize+in.n, func(all []byte) error {
		return im.placeRows(name, in, origin, all[headerSize:], loop)
	})
	if err != nil {
		return err
	}
	if err := os.Remove(in.path); err != nil {
		return writeError(im.shown(in.path), err)
	}
	return nil
}

// placeRows writes the rows of an edge table in the order of the edges.
func (im *importer) placeRows(name string, in, origin *arrayWriter, rows, loop []byte) error {
	rowBytes := in.cols * in.elem.size()
	out, err := im.array(name, in.elem, in.cols)
	if err != nil {
		return err
	}
	defer out.close()
	added := make([]byte, rowBytes)
	copy(added, loop)
	r := bufio.NewReaderSize(io.NewSectionReader(origin.f, headerSize, origin.n), 1<<20)
	part := make([]uint32, 1<<16)
	for left := origin.n / 4; left > 0; left -= int64(len(part)) {
		part = part[:min(left, int64(cap(part)))]
		if _, err := io.ReadFull(r, bytesOf(part)); err != nil {
			return fmt.Errorf("graph: read back %s: %w", im.shown(origin.path), err)
		}
		if err := im.o.Context.Err(); err != nil {
			return err
		}
		for _, e := range part {
			row := added
			if e != noOrigin {
				row = rows[int64(e)*rowBytes:][:rowBytes]
			}
			if _, err := out.Write(row); err != nil {
				return err
			}
		}
	}
	return out.finish()
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
