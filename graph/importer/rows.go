package importer

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/csc"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// buildGraph turns the spooled edges into the store's rows, and puts weights
// and edge features in their order.
func (im *importer) buildGraph() error {
	s := im.edges
	if err := s.flush(); err != nil {
		return err
	}
	carry := im.weights != nil || im.edgeFeatures != nil || im.edgeTimes != nil
	if carry && s.count >= csc.NoOrigin {
		return dataerr.Bad("%d edges with weights or features are more than the supported %d", s.count, int64(csc.NoOrigin))
	}
	b := csc.Builder{Undirected: im.o.Undirected, SelfLoops: im.o.SelfLoops}
	indptr := hugepages.Make[int64](int(im.nodes + 1))
	if _, err := b.Count(indptr, s.each); err != nil {
		return err
	}
	indices, err := im.w.Array(arrays.Indices, graph.Uint32, 1)
	if err != nil {
		return err
	}
	defer indices.Close()
	var origin *store.ArrayWriter
	if carry {
		if origin, err = im.w.ScratchArray("origin", graph.Uint32, 1); err != nil {
			return err
		}
		defer origin.Close()
	}
	if err := im.writeRows(&b, indptr, indices, origin); err != nil {
		return err
	}
	if err := s.drop(); err != nil {
		return err
	}
	if err := im.w.Put(arrays.Indptr, graph.Int64, 1, arrays.Bytes(indptr)); err != nil {
		return err
	}
	if err := indices.Finish(); err != nil {
		return err
	}
	if im.weights != nil {
		if err := im.followEdges(im.weights.ArrayWriter, arrays.Weights, origin, arrays.Bytes([]float32{1})); err != nil {
			return err
		}
	}
	if im.edgeFeatures != nil {
		if err := im.followEdges(im.edgeFeatures.ArrayWriter, arrays.EdgeFeatures, origin, nil); err != nil {
			return err
		}
	}
	if im.edgeTimes != nil {
		return im.followEdges(im.edgeTimes, arrays.EdgeTimes, origin, arrays.Bytes([]int64{math.MinInt64}))
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
func (im *importer) writeRows(b *csc.Builder, indptr []int64, indices, origin *store.ArrayWriter) error {
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
			row = hugepages.Make[uint32](int(k))
			if origin != nil {
				origins = hugepages.Make[uint32](int(k))
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
		if err := b.Place(indptr, lo, hi, row, part, from, edges); err != nil {
			return err
		}
		bounds := indptr[lo : hi+1]
		csc.SortRows(bounds, row, part)
		kept := end - base
		if dedup {
			kept = csc.CompactRows(bounds, written, row, part)
		}
		indptr[lo] = written
		written += kept
		if _, err := indices.Write(arrays.Bytes(row[:kept])); err != nil {
			return err
		}
		if origin != nil {
			if _, err := origin.Write(arrays.Bytes(part[:kept])); err != nil {
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
		return dataerr.Writing(s.im.w.Shown(s.path), err)
	}
	return nil
}

// followEdges writes a table that was spooled in input order in the order of
// the edges, whose indices in input order are in origin. Added self-loops get
// the row loop, or zeros.
func (im *importer) followEdges(in *store.ArrayWriter, name string, origin *store.ArrayWriter, loop []byte) error {
	defer in.Close()
	if in.Bytes() != im.edges.count*in.RowBytes() {
		return dataerr.Bad("there are %s for %d edges, but %d edges; give one row per edge", name, in.Bytes()/max(in.RowBytes(), 1), im.edges.count)
	}
	err := in.Map(func(rows []byte) error { return im.placeRows(name, in, origin, rows, loop) })
	if err != nil {
		return err
	}
	return in.Drop()
}

// placeRows writes the rows of an edge table in the order of the edges.
func (im *importer) placeRows(name string, in, origin *store.ArrayWriter, rows, loop []byte) error {
	rowBytes := in.RowBytes()
	out, err := im.w.Array(name, in.DType(), in.Cols())
	if err != nil {
		return err
	}
	defer out.Close()
	added := make([]byte, rowBytes)
	copy(added, loop)
	spooled, err := origin.Reader()
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(spooled, int(min(origin.Bytes(), 1<<20)))
	part := make([]uint32, min(origin.Bytes()/4, 1<<16))
	for left := origin.Bytes() / 4; left > 0; left -= int64(len(part)) {
		part = part[:min(left, int64(cap(part)))]
		if _, err := io.ReadFull(r, arrays.Bytes(part)); err != nil {
			return fmt.Errorf("graph: read back the order of the edges: %w", err)
		}
		if err := im.ctx.Err(); err != nil {
			return err
		}
		for _, e := range part {
			row := added
			if e != csc.NoOrigin {
				row = rows[int64(e)*rowBytes:][:rowBytes]
			}
			if _, err := out.Write(row); err != nil {
				return err
			}
		}
	}
	return out.Finish()
}

// startEdgeTable opens the scratch file of weights or edge features.
func (im *importer) startEdgeTable(name string, cols int, wide graph.DType) (*store.TableWriter, error) {
	weight := name == arrays.Weights // float32 whatever the values
	if weight {
		wide = graph.Float32
	}
	t, err := im.w.Table(name, cols, store.TableOptions{Wide: wide, Fixed: weight, Scratch: true})
	if err != nil {
		return nil, err
	}
	if weight {
		im.weights = t
	} else {
		im.edgeFeatures = t
	}
	return t, nil
}

// startNodeFeatures begins the table of node features, or a scratch one of them.
func (im *importer) startNodeFeatures(cols int, wide graph.DType, scratch bool) (*store.TableWriter, error) {
	return im.w.Table(arrays.NodeFeatures, cols, store.TableOptions{Wide: wide, Normalize: im.o.NormalizeFeatures, Scratch: scratch})
}
